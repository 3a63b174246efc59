//! What communication libraries say about the collectives that they ran.

use super::{Metric, rows, service};
use crate::{
    Class::Collective,
    unit::{Unit, Width::Bits64},
};

rows! {
    from service::END;
    INFO, "Which collective it is: its communicator, the size of its messages, its job.",
        Metric::info_series("gaunt_collective_info", Collective,
            &["job", "communicator", "operation", "ranks", "nodes", "message_size", "algorithm"]);
    BUS_BANDWIDTH, "Bandwidth that a link must have carried for the collective, whatever its algorithm.",
        Metric::gauge("gaunt_collective_bus_bytes_per_second", Collective, Unit::BytesPerSecond, 1e7).history();
    ALGORITHM_BANDWIDTH, "Bytes of the message over the time of the collective.",
        Metric::gauge("gaunt_collective_algorithm_bytes_per_second", Collective, Unit::BytesPerSecond, 1e7);
    DURATION, "How long the collective took, averaged over the last window.",
        Metric::gauge("gaunt_collective_duration_seconds", Collective, Unit::Seconds, 1e-6).history();
    RUN, "Collectives that the library recorded on the GPU.",
        Metric::counter("gaunt_collective_runs_total", Collective, Unit::Count, Bits64);
}
