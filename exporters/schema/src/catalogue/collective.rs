//! Metrics that communication libraries report about their collectives.

use super::{Metric, rows, service};
use crate::{
    DeviceClass::Collective,
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from service::END;
    INFO, "Which collective it is: its communicator, the rank of the GPU in it, the size of its messages, its job.",
        Metric::new_info_series("gaunt_collective_info", Collective,
            &["job", "communicator", "operation", "ranks", "nodes", "message_size", "algorithm", "rank"]);
    BUS_BANDWIDTH, "Bandwidth that a link must have carried for the collective, whatever its algorithm.",
        Metric::new_gauge("gaunt_collective_bus_bytes_per_second", Collective, Unit::BytesPerSecond, 1e7).with_history();
    ALGORITHM_BANDWIDTH, "Bytes of the message over the time of the collective.",
        Metric::new_gauge("gaunt_collective_algorithm_bytes_per_second", Collective, Unit::BytesPerSecond, 1e7);
    DURATION, "How long the collective took, averaged over the last window.",
        Metric::new_gauge("gaunt_collective_duration_seconds", Collective, Unit::Seconds, 1e-6).with_history();
    RUN, "Collectives that the library recorded on the GPU.",
        Metric::new_counter("gaunt_collective_runs_total", Collective, Unit::Count, Bits64);
}
