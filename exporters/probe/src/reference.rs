//! What boards of a model reach elsewhere: the least that their operators let pass, so that a node which was slow from its
//! first day is not its own measure.

use gaunt_schema::Safe;

use crate::order::{Measured, Tool, Way};

/// Messages of this size are bandwidth alone: an all-reduce of 4 GiB reaches 99.6 % of what one of 8 GiB does.
const RING_BYTES: u64 = 4 << 30;

/// A copy over PCIe is, from this size on.
const COPY_BYTES: u64 = 64 << 20;

/// Who says so.
const SOURCE: &str = "Azure's node health checks";

/// The least bus bandwidth of NCCL's all-reduce on one node, by the beginning of the model's name and the ranks.
const RINGS: &[(&str, usize, f64)] = &[
    ("NVIDIA H200", 8, 431e9),
    ("NVIDIA H100 80GB HBM3", 8, 460e9),
    ("NVIDIA H100 NVL", 2, 208e9),
    ("NVIDIA A100-SXM4", 8, 228e9),
    ("NVIDIA A100 80GB PCIe", 4, 25e9),
    ("Tesla V100-SXM2", 8, 110e9),
];

/// The least that a copy between a GPU and pinned memory of the host reaches.
const COPIES: &[(&str, f64)] =
    &[("NVIDIA H200", 48e9), ("NVIDIA H100 80GB HBM3", 48e9), ("NVIDIA A100-SXM4", 21e9)];

/// Puts beside each result the least that it should be, where somebody says one for boards of this model. Copies stand in
/// a table, which has no room for it: what is to be known of them is returned.
pub(crate) fn compare(model: Option<&Safe>, measured: &mut [Measured]) -> Vec<Safe> {
    let Some(model) = model else { return Vec::new() };
    let mut notes = Vec::new();
    for one in measured {
        one.reference = least(model, one);
        let slow = one.way == Way::Host && one.of_reference().is_some_and(|share| share < 1.0);
        let note = one.said_of_reference().filter(|_| slow);
        let note = note.map(|said| format!("{} {}: {said}", one.collective, one.between));
        notes.extend(note.map(|note| Safe::new(&note)));
    }
    notes
}

fn least(model: &str, one: &Measured) -> Option<f64> {
    let ring = one.tool == Tool::Nccl && one.collective.as_str() == "all_reduce";
    if ring && !one.virtual_ranks && one.bytes >= RING_BYTES {
        let rows =
            RINGS.iter().find(|(name, ranks, _)| model.starts_with(name) && one.ranks == *ranks);
        return rows.map(|(.., least)| *least);
    }
    let copy = one.way == Way::Host && one.bytes >= COPY_BYTES;
    let row = COPIES.iter().find(|(name, _)| copy && model.starts_with(name));
    row.map(|(_, least)| *least)
}

impl Measured {
    /// What it reached of the least that boards of its model should.
    pub fn of_reference(&self) -> Option<f64> {
        self.reference.map(|least| self.bandwidth() / least)
    }

    /// The same as a sentence.
    pub fn said_of_reference(&self) -> Option<String> {
        let (share, least) = (self.of_reference()? * 100.0, self.reference? / 1e9);
        let how = if share < 100.0 { "SLOW: " } else { "" };
        Some(format!("{how}{share:.0} % of the {least:.0} GB/s that pass {SOURCE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    fn ring(tool: Tool, ranks: usize, bytes: u64) -> Measured {
        Measured {
            collective: "all_reduce".into(),
            between: "gpu0..7".into(),
            tool,
            way: if tool == Tool::Nccl { Way::Chosen } else { Way::Peer },
            ranks,
            virtual_ranks: false,
            bytes,
            element: Element::F32,
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
    fn only_the_same_is_compared() {
        let model = Safe::new("NVIDIA H100 80GB HBM3");
        let mut all = [
            ring(Tool::Nccl, 8, RING_BYTES),
            ring(Tool::Nccl, 8, 1 << 26),
            ring(Tool::Nccl, 4, RING_BYTES),
            ring(Tool::Gaunt, 8, RING_BYTES),
        ];
        compare(Some(&model), &mut all);
        assert_eq!(all.each_ref().map(|one| one.reference), [Some(460e9), None, None, None]);
        let said = all[0].said_of_reference().unwrap();
        assert_eq!(said, "SLOW: 76 % of the 460 GB/s that pass Azure's node health checks");
        compare(Some(&Safe::new("NVIDIA B200")), &mut all);
        assert_eq!(all[0].reference, None, "nobody says one");
        all[0].reference = Some(1.0);
        compare(None, &mut all);
        assert_eq!(all[0].reference, Some(1.0));
    }

    #[test]
    fn a_copy_to_the_host_has_a_floor_of_its_own() {
        let copy = Measured {
            way: Way::Host,
            collective: "to_gpu".into(),
            busbw: Some(55e9),
            ..ring(Tool::Driver, 2, COPY_BYTES)
        };
        let slow = Measured { busbw: Some(24e9), ..copy.clone() };
        let mut all = [copy, slow];
        let notes = compare(Some(&Safe::new("NVIDIA H200")), &mut all);
        assert_eq!(all[0].of_reference(), Some(55.0 / 48.0));
        assert_eq!(
            notes,
            [Safe::new(
                "to_gpu gpu0..7: SLOW: 50 % of the 48 GB/s that pass Azure's node health checks"
            )]
        );
    }
}
