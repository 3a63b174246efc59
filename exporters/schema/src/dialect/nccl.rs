//! NCCL's inspector: how fast collectives were, by communicator, operation and size of message.

use super::{
    assembly::{Assembly, has_info, text},
    plan::{Blank, Op, Rule},
    special::Special,
    table::Told,
};
use crate::{
    Class, Device, Dialect, MetricId, Safe,
    catalogue::{
        Scale::{self, Per, Times},
        collective::{self, ALGORITHM_BANDWIDTH, BUS_BANDWIDTH, DURATION, RUN},
    },
    text::{Reason, Sample},
};

/// What the inspector sets before the number of a GPU.
const GPU: &str = "GPU";

/// Its labels with our names for them. The first five tell one series from the next.
const LABELS: [(&str, &str); 7] = [
    ("communicator", "comm_name"),
    ("operation", "collective|p2p_operation"),
    ("message_size", "message_size"),
    ("algorithm", "algo_proto"),
    ("ranks", "nranks"),
    ("nodes", "n_nodes"),
    ("job", "slurm_job_id"),
];

const fn special(name: &'static str, take: super::special::Take) -> Special {
    Special { name, dialect: Dialect::Nccl, take }
}

/// Its series: those of point-to-point operations say the same in other names.
pub(super) const SPECIAL: [Special; 6] = [
    special("nccl_bus_bandwidth_gbs", bus),
    special("nccl_p2p_bus_bandwidth_gbs", bus),
    special("nccl_collective_algobw_gbs", algorithm),
    special("nccl_collective_exec_time_microseconds", duration),
    special("nccl_p2p_exec_time_microseconds", duration),
    special("nccl_collective_count", count),
];

type Taken = Result<Op, Reason>;

fn bus<'a>(told: &mut Told, assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Taken {
    take(told, assembly, sample, BUS_BANDWIDTH, Times(1e9))
}

fn algorithm<'a>(told: &mut Told, assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Taken {
    take(told, assembly, sample, ALGORITHM_BANDWIDTH, Times(1e9))
}

fn duration<'a>(told: &mut Told, assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Taken {
    take(told, assembly, sample, DURATION, Per(1e6))
}

fn count<'a>(told: &mut Told, assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Taken {
    take(told, assembly, sample, RUN, Scale::Same)
}

fn take<'a>(
    told: &mut Told,
    assembly: &mut Assembly<'a>,
    sample: &Sample<'_, 'a>,
    metric: MetricId,
    scale: Scale,
) -> Taken {
    let gpu = text(sample, "gpu|gpu_id|device").ok_or(Reason::NoDevice)?;
    let known = LABELS.iter().filter_map(|(ours, theirs)| Some((*ours, text(sample, theirs)?)));
    let known: Vec<_> = known.collect();
    let labels: Vec<_> = known.iter().map(|(name, value)| (*name, &**value)).collect();
    let parts: Vec<&str> = labels.iter().take(5).map(|(_, value)| *value).collect();
    let number = gpu.strip_prefix(GPU).filter(|rest| !rest.is_empty()).unwrap_or(&gpu);
    let key = vec![Safe::new(number), Safe::new(&parts.join(" "))];
    let device = assembly.device(Device { class: Class::Collective, key: key.into() });
    if !has_info(&assembly.report, device, collective::INFO) && !labels.is_empty() {
        assembly.report.info(device, collective::INFO, &labels);
    }
    if told.node.is_none() {
        told.node = text(sample, "node|hostname").map(|name| Safe::new(&name));
    }
    if assembly.has(device, metric) {
        return Err(Reason::SameDevice);
    }
    assembly.read_foreign(device, metric, Rule::of(metric, scale, Blank::Never))
}
