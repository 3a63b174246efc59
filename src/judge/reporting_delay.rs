//! Reporting delays: how soon a fault can become a finding, by the interval at which its telemetry is renewed.

use std::time::Duration;

use gaunt_schema::DeviceClass;

use super::{Thresholds, sample_interval::SampleInterval};

/// Returns the least seconds from the first sample that shows a fault until a finding is inferred from samples of this
/// class of devices, which are renewed at this interval; none for classes that no inference rests on.
///
/// It is the shortest hold time of the detectors that read the class: no other one reports earlier.
pub fn least_inferred_seconds(
    limits: &Thresholds,
    class: DeviceClass,
    interval: Duration,
) -> Option<f64> {
    let interval = SampleInterval::of_duration(interval);
    let two_samples = interval.two_sample_seconds(limits);
    match class {
        // A clock is compared with those of its peers for two samples; evidence about a job is a sum over rounds, of
        // which one never suffices.
        DeviceClass::Gpu => {
            let round = interval.seconds().max(limits.average_seconds);
            Some(limits.slow_gpu_seconds.max(two_samples).min(round))
        }
        DeviceClass::Node => {
            Some(limits.starved_seconds.min(limits.storage_seconds).max(two_samples))
        }
        // Averages of queues and pauses must lie over their limits.
        DeviceClass::Port => {
            let incast = limits.incast_seconds.max(two_samples);
            Some(limits.hotspot_seconds.min(limits.link_errors_seconds).min(incast))
        }
        _ => None,
    }
}

/// Returns the seconds of consecutive samples after which a state that a device reports about itself, such as a port
/// that is down, is a finding.
pub fn reported_state_seconds(limits: &Thresholds, period: Duration) -> f64 {
    f64::from(limits.port_samples) * period.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_samples_delay_what_is_inferred_from_them() {
        let limits = Thresholds::default();
        let least = |class, seconds| {
            let delay = least_inferred_seconds(&limits, class, Duration::from_secs(seconds));
            delay.map(Duration::from_secs_f64).map(|delay| delay.as_secs())
        };
        for (seconds, gpu, host, port) in [(1, 5, 14, 8), (10, 10, 15, 8), (60, 60, 65, 8)] {
            let classes = [DeviceClass::Gpu, DeviceClass::Node, DeviceClass::Port];
            let delays = classes.map(|class| least(class, seconds));
            assert_eq!(delays, [Some(gpu), Some(host), Some(port)], "renewed every {seconds} s");
        }
        assert_eq!(least(DeviceClass::Disk, 1), None);
        let reported = reported_state_seconds(&limits, Duration::from_secs(10));
        assert!((reported - 20.0).abs() < 1e-9);
    }
}
