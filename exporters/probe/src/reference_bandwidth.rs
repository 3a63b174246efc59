//! Reference bandwidths of GPU models: the minimum that other operators accept, so that a node which was slow from its
//! first day is not only compared with itself.

use gaunt_schema::SanitizedText;

use crate::request::{BandwidthMeasurement, DataPath, MeasureTool};

/// From this size on a message measures bandwidth alone: an all-reduce of 4 GiB reaches 99.6 % of one of 8 GiB.
const RING_BYTES: u64 = 4 << 30;

/// The same for a copy over PCIe.
const COPY_BYTES: u64 = 64 << 20;

/// The source of the references.
const SOURCE: &str = "Azure's node health checks";

/// The minimum bus bandwidth of NCCL's all-reduce on one node, by prefix of the model's name and ranks.
const RINGS: &[(&str, usize, f64)] = &[
    ("NVIDIA H200", 8, 431e9),
    ("NVIDIA H100 80GB HBM3", 8, 460e9),
    ("NVIDIA H100 NVL", 2, 208e9),
    ("NVIDIA A100-SXM4", 8, 228e9),
    ("NVIDIA A100 80GB PCIe", 4, 25e9),
    ("Tesla V100-SXM2", 8, 110e9),
];

/// The minimum bandwidth of a copy between a GPU and pinned host memory.
const COPIES: &[(&str, f64)] =
    &[("NVIDIA H200", 48e9), ("NVIDIA H100 80GB HBM3", 48e9), ("NVIDIA A100-SXM4", 21e9)];

/// Sets each result's reference, where one exists for this model. The table of copies has no column for it: slow copies
/// are returned as notes.
pub(crate) fn apply_references(
    model: Option<&SanitizedText>,
    measured: &mut [BandwidthMeasurement],
) -> Vec<SanitizedText> {
    let Some(model) = model else { return Vec::new() };
    let mut notes = Vec::new();
    for measurement in measured {
        measurement.reference = reference_bandwidth(model, measurement);
        let is_slow = measurement.way == DataPath::Host
            && measurement.share_of_reference().is_some_and(|share| share < 1.0);
        let note = measurement.render_reference_share().filter(|_| is_slow);
        let note = note
            .map(|share| format!("{} {}: {share}", measurement.collective, measurement.between));
        notes.extend(note.map(|note| SanitizedText::new(&note)));
    }
    notes
}

fn reference_bandwidth(model: &str, measurement: &BandwidthMeasurement) -> Option<f64> {
    let ring =
        measurement.tool == MeasureTool::Nccl && measurement.collective.as_str() == "all_reduce";
    if ring && !measurement.virtual_ranks && measurement.bytes >= RING_BYTES {
        let rows = RINGS
            .iter()
            .find(|(name, ranks, _)| model.starts_with(name) && measurement.ranks == *ranks);
        return rows.map(|(.., reference)| *reference);
    }
    let copy = measurement.way == DataPath::Host && measurement.bytes >= COPY_BYTES;
    let row = COPIES.iter().find(|(name, _)| copy && model.starts_with(name));
    row.map(|(_, reference)| *reference)
}

impl BandwidthMeasurement {
    /// The ratio of its bandwidth to the reference of its model.
    pub fn share_of_reference(&self) -> Option<f64> {
        self.reference.map(|reference| self.effective_bandwidth() / reference)
    }

    /// The same as a sentence.
    pub fn render_reference_share(&self) -> Option<String> {
        let (share, reference) = (self.share_of_reference()? * 100.0, self.reference? / 1e9);
        let prefix = if share < 100.0 { "SLOW: " } else { "" };
        Some(format!("{prefix}{share:.0} % of {reference:.0} GB/s, the minimum of {SOURCE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn all_reduce_measurement(tool: MeasureTool, ranks: usize, bytes: u64) -> BandwidthMeasurement {
        BandwidthMeasurement {
            collective: "all_reduce".into(),
            between: "gpu0..7".into(),
            tool,
            way: if tool == MeasureTool::Nccl { DataPath::Chosen } else { DataPath::Peer },
            ranks,
            virtual_ranks: false,
            bytes,
            element: ElementType::F32,
            seconds: [0.1; 3],
            runs: 5,
            algbw: 200e9,
            busbw: Some(350e9),
            reference: None,
            wrong: 0,
            wrong_at: None,
        }
    }

    #[test]
    fn reference_is_used_only_for_equal_measurements() {
        let model = SanitizedText::new("NVIDIA H100 80GB HBM3");
        let mut measurements = [
            all_reduce_measurement(MeasureTool::Nccl, 8, RING_BYTES),
            all_reduce_measurement(MeasureTool::Nccl, 8, 1 << 26),
            all_reduce_measurement(MeasureTool::Nccl, 4, RING_BYTES),
            all_reduce_measurement(MeasureTool::Gaunt, 8, RING_BYTES),
        ];
        apply_references(Some(&model), &mut measurements);
        assert_eq!(
            measurements.each_ref().map(|measurement| measurement.reference),
            [Some(460e9), None, None, None]
        );
        let text = measurements[0].render_reference_share().unwrap();
        assert_eq!(text, "SLOW: 76 % of 460 GB/s, the minimum of Azure's node health checks");
        apply_references(Some(&SanitizedText::new("NVIDIA B200")), &mut measurements);
        assert_eq!(measurements[0].reference, None, "no reference");
        measurements[0].reference = Some(1.0);
        apply_references(None, &mut measurements);
        assert_eq!(measurements[0].reference, Some(1.0));
    }

    #[test]
    fn host_copy_has_its_own_floor() {
        let copy = BandwidthMeasurement {
            way: DataPath::Host,
            collective: "to_gpu".into(),
            busbw: Some(55e9),
            ..all_reduce_measurement(MeasureTool::Driver, 2, COPY_BYTES)
        };
        let slow_copy = BandwidthMeasurement { busbw: Some(24e9), ..copy.clone() };
        let mut measurements = [copy, slow_copy];
        let notes = apply_references(Some(&SanitizedText::new("NVIDIA H200")), &mut measurements);
        assert_eq!(measurements[0].share_of_reference(), Some(55.0 / 48.0));
        assert_eq!(
            notes,
            [SanitizedText::new(
                "to_gpu gpu0..7: SLOW: 50 % of 48 GB/s, the minimum of Azure's node health checks"
            )]
        );
    }
}
