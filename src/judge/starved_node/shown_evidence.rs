//! What the finding about a starved node shows: its sentences and its evidence.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, EvidenceItem, FindingKind};

use super::StarvedNode;
use crate::{
    EvidenceRow, JudgeState,
    host_averages::BaselineComparison,
    host_pressure::{CpuPressure, HostPressure},
    pending_finding::format_percent,
};

impl StarvedNode<'_> {
    pub(super) fn next_step(&self, kind: FindingKind, io: bool) -> String {
        let name = &self.node.name;
        match (io, kind) {
            (true, _) => {
                format!("Check what the data loader on {name} reads, and from which disk or mount.")
            }
            (_, FindingKind::HostBound) => format!(
                "Check the process that keeps one CPU of {name} busy, and what shares that CPU."
            ),
            _ => format!(
                "Check the data loader processes on {name}: their number and their CPU use."
            ),
        }
    }

    pub(super) fn render_summary(
        &self,
        kind: FindingKind,
        judge: &JudgeState,
        cluster: &Cluster,
    ) -> String {
        let (fault, input) = if kind == FindingKind::DataStarved {
            ("data-starved", "for input")
        } else {
            ("host-bound", "for kernel launches")
        };
        let name = &self.node.name;
        let pressure = self.render_pressure(judge, cluster);
        let gpus = self.node.device_rows(DeviceClass::Gpu).len();
        let wait = match (self.low.len(), self.of) {
            (1, 1) => "its allocated GPU waits".to_owned(),
            (low, of) if low == of && of == gpus => format!("all {of} GPUs wait"),
            (low, of) if low == of => format!("all {of} allocated GPUs wait"),
            (low, of) => format!("{low} of {of} allocated GPUs wait"),
        };
        let baseline = self.baseline.unwrap_or_default();
        let effect = if self.utilization < baseline * judge.limits.hungry_ratio {
            let (now, baseline) = (format_percent(self.utilization), format_percent(baseline));
            format!("utilization {now}, baseline {baseline}")
        } else {
            let slowdown = self.group.slowdown_ratio().map(format_percent);
            let slowdown = slowdown.map(|slowdown| format!(", job slowdown {slowdown}"));
            format!("low in some samples{}", slowdown.unwrap_or_default())
        };
        format!("{name} is {fault}: {wait} {input}{pressure}; {effect}.")
    }

    /// Returns the pressure of the host that counts as evidence: ` (IO pressure 76 %)`.
    fn render_pressure(&self, judge: &JudgeState, cluster: &Cluster) -> String {
        let HostPressure { io, pressed, crowded, pegged, .. } = self.pressure(judge, cluster);
        let value = |compared: Option<BaselineComparison>, counts: bool| {
            compared.filter(|_| counts).map(|compared| compared.now)
        };
        let io = value(self.host.compare_io_pressure(cluster), io);
        let cpu = value(self.host.compare_cpu_pressure(cluster), pressed || crowded);
        let busiest = value(self.host.compare_busiest_cpu(cluster), pegged);
        let io = io.map(|io| ("IO pressure", io));
        let cpu = cpu.map(|cpu| ("CPU pressure", cpu));
        let busiest = busiest.map(|busiest| ("busiest CPU", busiest));
        let (what, value) = io.or(cpu).or(busiest).unwrap_or_default();
        if what.is_empty() {
            return String::new();
        }
        format!(" ({what} {})", format_percent(value))
    }

    pub(super) fn collect_evidence(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
    ) -> Vec<EvidenceItem> {
        let limits = &judge.limits;
        let baseline = |beside: Option<BaselineComparison>| {
            if self.outlying.is_some() {
                return "limit: from the other nodes of the job".to_owned();
            }
            let baseline = beside.and_then(|beside| beside.baseline);
            baseline
                .map(|baseline| format!("limit: above the baseline {}", format_percent(baseline)))
                .unwrap_or_default()
        };
        let now = |beside: Option<BaselineComparison>| beside.map(|beside| beside.now);
        // What was there before counts for nothing, unless no other node of the job has it.
        let above = |beside: Option<BaselineComparison>, limit: f64| {
            let before = beside.and_then(|beside| beside.baseline).unwrap_or_default();
            Some(self.outlying.map_or(limit + before, |outlying| outlying.limit))
        };
        let (io, cpu) =
            (self.host.compare_io_pressure(cluster), self.host.compare_cpu_pressure(cluster));
        let pressure = self.pressure(judge, cluster);
        let (cpu_limit, cpu_key) = if pressure.crowded && !pressure.pressed {
            (limits.cpu_crowded_ratio, "cpu_crowded_ratio")
        } else {
            (limits.cpu_pressure_ratio, "cpu_pressure_ratio")
        };
        vec![
            EvidenceRow::StarvedGpus
                .to_evidence(Some(self.low.len() as f64), None)
                .with_note(format!("of {} allocated", self.of)),
            EvidenceRow::StarvedUtilization
                .to_evidence(
                    Some(self.utilization),
                    self.baseline.map(|baseline| match self.idle_ranks {
                        // Small drops of steady ranks count as well.
                        Some(_) => f64::midpoint(self.utilization, baseline),
                        None => baseline * self.low_ratio,
                    }),
                )
                // Idle ranks are told by the sum of many samples, and not by this one.
                .context_if(self.idle_ranks.is_some())
                .with_note(self.baseline.map_or_else(String::new, |baseline| {
                    format!("limit: share of the baseline {}", format_percent(baseline))
                })),
            EvidenceRow::OtherUtilization.to_evidence(self.others, None),
            EvidenceRow::IoPressure
                .to_evidence(now(io), above(io, self.host.least_io_rise(limits)))
                .context_if(!pressure.io)
                .with_note(baseline(io)),
            EvidenceRow::CpuPressure
                .to_evidence(now(cpu), above(cpu, cpu_limit))
                .with_threshold(cpu_key)
                .context_if(!(pressure.pressed || pressure.crowded))
                .with_note(baseline(cpu)),
            EvidenceRow::StorageResponse.to_evidence(
                self.slow_response(judge, cluster).map(|response| response.now),
                self.slow_response(judge, cluster)
                    .and_then(|response| response.baseline)
                    .map(|baseline| baseline * limits.slow_response_times),
            ),
            CpuPressure::of(&self.host, cluster, limits)
                .busiest_evidence(limits)
                .context_if(!pressure.pegged),
            EvidenceRow::JobSlowdown
                .to_evidence(self.group.slowdown_ratio(), Some(limits.slowed_ratio)),
        ]
    }
}
