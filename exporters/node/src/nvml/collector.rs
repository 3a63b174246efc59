//! The collector of the GPUs: what the workers said becomes readings, what they did not say becomes absence.

use std::time::{Duration, Instant};

use gaunt_schema::{Report, Safe, UnixMs};

use super::{
    gpus::Remembered,
    pipe::{self, Message},
    supervisor::{Health, Heard, Supervisor},
};
use crate::{
    Options,
    collector::{CollectError, Collector, Outcome},
};

/// Reads GPUs through the workers of a [`Supervisor`].
pub(crate) struct Gpus {
    supervisor: Supervisor,
    remembered: Remembered,
    driver: Safe,
    /// When the last round began.
    last_tick: Option<UnixMs>,
    /// How long ago a round may have begun for its values to stand for now.
    longest_age: Duration,
    /// What went wrong in the last round.
    failures: Vec<Safe>,
}

impl Gpus {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            supervisor: Supervisor::new(options),
            remembered: Remembered::default(),
            driver: Safe::default(),
            last_tick: None,
            longest_age: options.period + options.call_deadline,
            failures: Vec::new(),
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Gone(worker) => self.remembered.forget_worker(worker),
            Heard::Said(worker, Message::Hello { version, pid, driver }) => {
                tracing::info!(worker, pid, %driver, "the NVML worker is ready");
                if version != pipe::VERSION {
                    tracing::error!(version, "the NVML worker is of another version");
                }
                self.driver = driver;
            }
            Heard::Said(worker, Message::Inventory { gpus }) => {
                self.remembered.inventory(worker, &self.driver, gpus);
            }
            // A round that hung half-way and came back is older than what its spare has said since.
            Heard::Said(_, Message::Tick { at, .. }) if self.last_tick >= Some(at) => {}
            Heard::Said(worker, Message::Tick { at, seconds, gpus, failures }) => {
                self.remembered.tick(worker, seconds, gpus);
                self.last_tick = Some(at);
                if failures != self.failures {
                    for failure in &failures {
                        tracing::warn!(%failure, "a driver call failed");
                    }
                    self.failures = failures;
                }
            }
            // These concern the supervisor, which took them.
            Heard::Said(_, Message::Calling(_) | Message::Trouble { .. }) => {}
        }
    }

    /// What is said of GPUs that answer.
    fn found(&self) -> String {
        let (count, gone) = self.remembered.count();
        let plural = if count == 1 { "" } else { "s" };
        let mut parts = vec![format!("NVIDIA driver {}, {count} GPU{plural}", self.driver)];
        if !gone.is_empty() {
            let gone: Vec<_> = gone.iter().map(ToString::to_string).collect();
            parts.push(format!("lost: GPU {}", gone.join(", ")));
        }
        parts.extend(self.failures.first().map(ToString::to_string));
        if self.failures.len() > 1 {
            parts.push(format!("and {} more, see the log", self.failures.len() - 1));
        }
        parts.join("; ")
    }
}

impl Collector for Gpus {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        let now = Instant::now();
        for heard in self.supervisor.step(now) {
            self.take(heard);
        }
        let mut health = self.supervisor.health(now);
        let time = report.node_time.or(self.last_tick).unwrap_or_default();
        if health == Health::Working
            && self.last_tick.is_some_and(|at| time.since(at) > self.longest_age)
        {
            health = Health::Slow;
        }
        self.remembered.write(health == Health::Working, report);
        // A node that had GPUs and now has none has a problem, whatever the worker thinks.
        let had_gpus = self.remembered.count().0 > 0;
        match health {
            Health::Working => Ok(Outcome::FoundThat { message: self.found(), at: self.last_tick }),
            Health::Starting => {
                Ok(Outcome::Pending("waiting for the NVIDIA driver to initialise".to_owned()))
            }
            Health::Blocked(calling) => Err(CollectError::Driver(format!(
                "driver call {calling} does not return; GPU values are stale; see `dmesg` for an Xid"
            ))),
            Health::Slow => Err(CollectError::Driver(
                "the driver answers too slowly; GPU values are stale; see `dmesg` for an Xid"
                    .to_owned(),
            )),
            Health::NothingHere(message) if !had_gpus => Ok(Outcome::Nothing(message.to_string())),
            Health::NothingHere(message) | Health::Down(message) => {
                Err(CollectError::Driver(message.to_string()))
            }
        }
    }
}
