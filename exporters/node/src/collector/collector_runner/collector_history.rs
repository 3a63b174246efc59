//! The status of a collector's runs: its own series on the page, and a log line when a failure begins and ends.

use gaunt_schema::{Device, Report, UnixMs, catalogue::exporter};

use super::CollectorRun;
use crate::collector::CollectOutcome;

/// The state of one collector between rounds.
#[derive(Default)]
pub(super) struct CollectorHistory {
    last_success: Option<UnixMs>,
    /// The last logged message: a failure is logged when it begins, not once a second.
    logged: Option<String>,
}

impl CollectorHistory {
    /// Adds the collector's own series to the report, and logs a failure when it begins and when it ends.
    pub(super) fn report_status(
        &mut self,
        ran: &CollectorRun<'_>,
        now: UnixMs,
        report: &mut Report,
    ) {
        let name = ran.name;
        let device = report.ensure_device(Device::new_collector(name));
        let (message, success) = match &ran.outcome {
            Ok(CollectOutcome::Found) => (None, Some(Ok(now))),
            Ok(CollectOutcome::FoundThat { message, at }) => {
                (Some(message.clone()), Some(Ok(at.unwrap_or(now))))
            }
            Ok(CollectOutcome::Nothing(message)) => (Some(message.clone()), Some(Ok(now))),
            Ok(CollectOutcome::Pending(message)) => (Some(message.clone()), None),
            Err(error) => (Some(error.to_string()), Some(Err(()))),
        };
        if let Some(message) = &message {
            report.add_info(device, exporter::COLLECTOR_INFO, &[("message", message)]);
        }
        match success {
            Some(Ok(at)) => {
                self.last_success = Some(at);
                report.push(device, exporter::COLLECTOR_SUCCESS, 1.0);
                if self.logged.take().is_some() {
                    tracing::info!(collector = name, "collector succeeds again");
                }
            }
            Some(Err(())) => {
                report.push(device, exporter::COLLECTOR_SUCCESS, 0.0);
                if self.logged != message {
                    let reason = message.as_deref().unwrap_or_default();
                    tracing::warn!(collector = name, reason, "collector failed");
                    self.logged = message;
                }
            }
            None => {}
        }
        report.push(device, exporter::COLLECTOR_DURATION, ran.took.as_secs_f64());
        if let Some(at) = self.last_success {
            report.push(device, exporter::COLLECTOR_LAST_SUCCESS, at.to_seconds());
        }
    }
}
