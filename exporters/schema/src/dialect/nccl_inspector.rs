//! NCCL's inspector: the speed of collectives, by communicator, operation and message size.

use super::{
    custom_handler::CustomHandler,
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    dialect_table::{DecodeContext, DialectTable, declined},
    report_builder::{ReportBuilder, has_info, label_text},
};
use crate::{
    Device, DeviceClass, Dialect, MetricId, SanitizedText,
    catalogue::{
        UnitScale::{self, Per, Times},
        collective::{self, ALGORITHM_BANDWIDTH, BUS_BANDWIDTH, DURATION, RUN},
    },
    text::{Reason, TextSample},
};

/// Why the inspector's counts of its own records are not read.
const RECORDS: &str =
    "counts what the inspector records of all operations, or loses of them, not what they take";

/// The names without a handler: those that NCCL_INSPECTOR_PROM_DUMP_STATS adds.
pub(super) const TABLE: DialectTable = DialectTable {
    dialect: Dialect::Nccl,
    mappings: &[
        declined("nccl_collectives_total", RECORDS),
        declined("nccl_collectives_dropped_total", RECORDS),
        declined("nccl_p2p_total", RECORDS),
        declined("nccl_p2p_dropped_total", RECORDS),
    ],
    keys: &[],
    identity: &[],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};

/// The prefix of a GPU's number.
const GPU: &str = "GPU";

/// Its labels with our names for them. The first five identify a series.
const LABELS: [(&str, &str); 7] = [
    ("communicator", "comm_name"),
    ("operation", "collective|p2p_operation"),
    ("message_size", "message_size"),
    ("algorithm", "algo_proto"),
    ("ranks", "nranks"),
    ("nodes", "n_nodes"),
    ("job", "slurm_job_id"),
];

const fn nccl_handler(
    name: &'static str,
    decode: super::custom_handler::DecodeFn,
) -> CustomHandler {
    CustomHandler { name, dialect: Dialect::Nccl, decode }
}

/// Its series: those of point-to-point operations have the same form under other names.
pub(super) const SPECIAL: [CustomHandler; 6] = [
    nccl_handler("nccl_bus_bandwidth_gbs", decode_bus_bandwidth),
    nccl_handler("nccl_p2p_bus_bandwidth_gbs", decode_bus_bandwidth),
    nccl_handler("nccl_collective_algobw_gbs", decode_algorithm_bandwidth),
    nccl_handler("nccl_collective_exec_time_microseconds", decode_duration),
    nccl_handler("nccl_p2p_exec_time_microseconds", decode_duration),
    nccl_handler("nccl_collective_count", decode_count),
];

type DecodedOp = Result<DecodeOp, Reason>;

fn decode_bus_bandwidth<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> DecodedOp {
    decode_metric(context, builder, sample, BUS_BANDWIDTH, Times(1e9))
}

fn decode_algorithm_bandwidth<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> DecodedOp {
    decode_metric(context, builder, sample, ALGORITHM_BANDWIDTH, Times(1e9))
}

fn decode_duration<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> DecodedOp {
    decode_metric(context, builder, sample, DURATION, Per(1e6))
}

fn decode_count<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> DecodedOp {
    decode_metric(context, builder, sample, RUN, UnitScale::Same)
}

fn decode_metric<'a>(
    context: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
    metric: MetricId,
    scale: UnitScale,
) -> DecodedOp {
    let gpu = label_text(sample, "gpu|gpu_id|device").ok_or(Reason::NoDevice)?;
    let labels = LABELS.iter().filter_map(|(own_label, foreign_label)| {
        Some((*own_label, label_text(sample, foreign_label)?))
    });
    let labels: Vec<_> = labels.collect();
    let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
    let parts: Vec<&str> = labels.iter().take(5).map(|(_, value)| *value).collect();
    let number = gpu.strip_prefix(GPU).filter(|rest| !rest.is_empty()).unwrap_or(&gpu);
    let key = vec![SanitizedText::new(number), SanitizedText::new(&parts.join(" "))];
    let device = builder.ensure_device(Device { class: DeviceClass::Collective, key: key.into() });
    if !has_info(&builder.report, device, collective::INFO) && !labels.is_empty() {
        builder.report.add_info(device, collective::INFO, &labels);
    }
    if context.node.is_none() {
        context.node = label_text(sample, "node|hostname").map(|name| SanitizedText::new(&name));
    }
    builder.plan_foreign_reading(device, metric, ValueRule::of(metric, scale, BlankValues::Never))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{PageLimits, decode_page};

    #[test]
    fn own_series_of_a_collective_win_over_the_inspectors() {
        let own = "gaunt_collective_duration_seconds{gpu=\"0\",collective=\"dp AllReduce 4-5MB\"} 0.005\n";
        let foreign = "nccl_collective_exec_time_microseconds{gpu=\"GPU0\",comm_name=\"dp\",collective=\"AllReduce\",message_size=\"4-5MB\"} 7\n";
        let decode = |text: &str| decode_page(text.as_bytes(), &PageLimits::default()).unwrap();
        let page = decode(&[own, foreign].concat());
        let [device] = page.report.devices.iter().as_slice() else { panic!("{page:?}") };
        let duration = page.report.find_reading(device, DURATION).and_then(crate::Reading::value);
        assert_eq!((duration, page.rejected.total_count()), (Some(0.005), 0));
        // Two of one GPU are refused.
        let page = decode(&[foreign, foreign].concat());
        assert_eq!(page.rejected.total_count(), 1);
    }
}
