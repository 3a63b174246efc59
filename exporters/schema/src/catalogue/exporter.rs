//! Metrics of an exporter about itself, and the series that marks absence.

use super::{Metric, probe_results, rows};
use crate::{DeviceClass::Collector, unit::Unit};

/// The series that marks another one as absent.
pub const ABSENT: &str = "gaunt_absent";

/// The help of [`ABSENT`].
pub const ABSENT_HELP: &str = "A series that could exist and has no value, and why.";

rows! {
    from probe_results::END;
    COLLECTOR_INFO, "What the collector found, or why it found nothing.",
        Metric::new_info_series("gaunt_collector_info", Collector, &["message"]);
    COLLECTOR_SUCCESS, "Whether the collector's last run succeeded; having nothing to collect is success.",
        Metric::new_gauge("gaunt_collector_success", Collector, Unit::Count, 1.0);
    COLLECTOR_DURATION, "How long the collector's last run took.",
        Metric::new_gauge("gaunt_collector_duration_seconds", Collector, Unit::Seconds, 1e-6);
    COLLECTOR_LAST_SUCCESS, "When the collector last succeeded, by the clock of gaunt_node_time_seconds.",
        Metric::new_gauge("gaunt_collector_last_success_timestamp_seconds", Collector, Unit::Seconds, 1e-3);
    HUNG_WORKERS, "Worker processes that wait in a driver call that does not return.",
        Metric::new_gauge("gaunt_collector_hung_workers", Collector, Unit::Count, 1.0);
}
