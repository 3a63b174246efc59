//! The decode plan: what to do with each value of a page, compiled once from names and labels and replayed on pages
//! with the same template.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::dcgm_values;
use crate::{
    AbsenceReason, Device, DeviceClass, MetricId, MetricSample, Reading, SanitizedText, UnixMs,
    catalogue::{UnitScale, gpu, gpu_parts},
    text::Reason,
    unit::{CounterWidth, MetricKind},
};

/// The year 10,000 in seconds since the epoch: a clock beyond it is broken, and differences to it would overflow
/// [`UnixMs`].
const END_OF_TIME: f64 = 253_402_300_800.0;

/// The CPUs of a page that has as many or more are not compared with each other.
pub(crate) const MAX_COMPARED_CPUS: u16 = 4_096;

/// The speed of a PCIe lane in GT/s, by generation from 1.
const PCIE_SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];

/// Which values mean that there is no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BlankValues {
    /// Only those that are not finite.
    Never,
    /// The blank values of DCGM, in a gauge.
    DcgmGauge,
    /// The blank values of DCGM that a counter cannot legitimately reach.
    DcgmCounter,
    /// Any value below zero.
    Negative,
    /// The largest number of 16, 32 or 64 bits: AMD's library returns it where there is no value.
    AllOnes,
}

/// The conversion of a value to a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ValueRule {
    /// From the exporter's unit to ours.
    pub(super) scale: UnitScale,
    /// Which values are blank.
    pub(super) blank: BlankValues,
    /// Where the counter saturates.
    pub(super) end: Option<f64>,
    /// The unit is known only after the whole page; until then the value is kept as it is.
    pub(super) has_page_unit: bool,
    /// The unit was concluded from whole numbers: a value with decimals invalidates the plan, and so does a page on which 1
    /// is the largest value.
    pub(super) requires_whole: bool,
    /// The one value that means yes; all others mean no.
    pub(super) true_value: Option<f64>,
    /// The value is a speed of PCIe in GT/s, and the reading its generation.
    pub(super) is_pcie_speed: bool,
}

impl ValueRule {
    /// The rule of a row that is reported in another unit.
    pub(super) fn of(metric: MetricId, scale: UnitScale, blank: BlankValues) -> Self {
        // Exactly at its maximum it is saturated; above it the counter of this device is wider than the table knows.
        let end = match metric.catalogue_row().kind {
            MetricKind::Counter(width @ CounterWidth::Saturating(_)) => width.max_value(),
            _ => None,
        };
        let blank = match (blank, metric.catalogue_row().kind) {
            (BlankValues::DcgmGauge, MetricKind::Counter(_)) => BlankValues::DcgmCounter,
            _ => blank,
        };
        Self {
            scale,
            blank,
            end,
            has_page_unit: false,
            requires_whole: false,
            true_value: None,
            is_pcie_speed: false,
        }
    }

    /// Converts a value to a reading.
    #[inline]
    pub(super) fn apply_rule(&self, value: f64, digits: &[u8]) -> Reading {
        if let Some(reason) = self.blank.of(value, digits) {
            return reason.into();
        }
        if let Some(yes) = self.true_value {
            let flag = if value.is_nan() {
                value
            } else {
                f64::from(u8::from(value.to_bits() == yes.to_bits()))
            };
            return Reading::of(flag);
        }
        if self.is_pcie_speed {
            // A link that is down has a speed of zero, which is no generation.
            let generation =
                PCIE_SPEEDS.iter().position(|speed| speed.to_bits() == value.to_bits());
            return generation
                .map_or(AbsenceReason::Error.into(), |index| Reading::of(index as f64 + 1.0));
        }
        if self.end == Some(value) {
            return AbsenceReason::Saturated.into();
        }
        Reading::of(self.scale.to_catalogue_unit(value))
    }
}

impl BlankValues {
    /// Whether the value stands for no value.
    pub(super) fn is_blank(self, value: f64, digits: &[u8]) -> bool {
        self.of(value, digits).is_some()
    }

    #[inline]
    fn of(self, value: f64, digits: &[u8]) -> Option<AbsenceReason> {
        match self {
            Self::Never => None,
            Self::DcgmGauge => dcgm_values::blank_reason(true, value, digits),
            Self::DcgmCounter => dcgm_values::blank_reason(false, value, digits),
            Self::Negative => (value < 0.0).then_some(AbsenceReason::Unsupported),
            Self::AllOnes => {
                let ends = [f64::from(u16::MAX), f64::from(u32::MAX), u64::MAX as f64];
                ends.contains(&value).then_some(AbsenceReason::Unsupported)
            }
        }
    }
}

/// The operation on the value of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DecodeOp {
    /// Ignores the value.
    Ignore,
    /// Stores the value as the reading of this sample of the report.
    Read { index: u32, rule: u16 },
    /// Adds the value to this sample.
    Add { index: u32, rule: u16 },
    /// Does what the field of a part with this number means.
    Part(u32),
    /// Adds the value to the seconds without work of the CPU at this place, if it is a single one.
    CpuIdle(u16),
    /// The same, and adds the value to this sample.
    CpuIowait { index: u32, cpu: u16 },
    /// Stores the bits as the readings of the clock-event reasons, from this sample on.
    Bits { index: u32, rule: u16 },
    /// Records the last XID of this GPU of the plan: it names a device, if it is a valid XID.
    Xid(u32),
    /// Stores the node's clock.
    Time,
    /// Guards the plan: the line has this meaning only while its value is the one of this number.
    RequireValue(u32),
    /// Rejects the line.
    Refuse(Reason),
}

/// What the value of a part of a device becomes: a sample's reading, and a summand of other samples, each with its rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PartField {
    pub(super) own: Option<(u32, u16)>,
    pub(super) sums: [Option<(u32, u16)>; 2],
}

/// The values of a page that are not readings of samples.
#[derive(Debug, Default)]
pub(crate) struct SideValues {
    /// The node's clock.
    pub(crate) time: Option<UnixMs>,
    /// Whether a value is 1, and whether one is above it, of those that are known as percentages by their values.
    has_one: bool,
    exceeds_one: bool,
    xids: Vec<ShownXid>,
    /// The seconds without work of each CPU, in the order of the page.
    pub(crate) cpu_idle: Vec<f64>,
}

/// The last XID of a GPU of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShownXid {
    gpu: u32,
    code: u32,
}

/// Whether a value is the one that only a unit gives a meaning.
pub(super) fn is_one(value: f64) -> bool {
    value.to_bits() == 1.0_f64.to_bits()
}

impl SideValues {
    /// The XIDs of all GPUs, deduplicated and sorted, wherever on the page they are.
    pub(crate) fn take_xids(&mut self) -> Vec<ShownXid> {
        self.xids.sort_unstable();
        self.xids.dedup();
        std::mem::take(&mut self.xids)
    }

    /// Whether the values show no unit: then what the plan knows of it is that of another page.
    pub(crate) const fn lacks_ratio_unit(&self) -> bool {
        self.has_one && !self.exceeds_one
    }

    fn add_cpu_idle(&mut self, cpu: u16, seconds: f64) {
        if cpu >= MAX_COMPARED_CPUS {
            return;
        }
        let cpu = usize::from(cpu);
        if self.cpu_idle.len() <= cpu {
            self.cpu_idle.resize(cpu + 1, 0.0);
        }
        self.cpu_idle[cpu] += seconds;
    }
}

/// A value changes the meaning of the page, so the plan does not apply.
#[derive(Debug)]
pub(crate) struct PlanMismatch;

/// One operation for each line of a page, and the samples that they fill.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DecodePlan {
    /// One operation per sample line, in order.
    pub(crate) ops: Vec<DecodeOp>,
    /// The samples of the report; those that no line fills are constant.
    pub(crate) samples: Vec<MetricSample>,
    rules: Vec<ValueRule>,
    required_values: Vec<u64>,
    part_fields: Vec<PartField>,
    /// The GPUs that have a line for their last XID.
    pub(super) gpus: Vec<SanitizedText>,
}

impl DecodePlan {
    /// The number of a rule, added if it is new.
    pub(super) fn ensure_rule(&mut self, rule: ValueRule) -> u16 {
        // A page has a dozen rules, and consecutive lines mostly share one.
        let index = self.rules.iter().rposition(|index| *index == rule);
        index.unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        }) as u16
    }

    /// Adds a field of a part.
    pub(super) fn add_part_field(&mut self, field: PartField) -> DecodeOp {
        // The times of each CPU are added up to the same samples.
        if self.part_fields.last() != Some(&field) {
            self.part_fields.push(field);
        }
        DecodeOp::Part(self.part_fields.len() as u32 - 1)
    }

    /// Applies the unit that the whole page shows, per cent or not, to the values that depend on it, and to the values of
    /// later pages. Without one there is no value, except for 0. Whether a value is left out for that.
    pub(super) fn apply_page_unit(
        &mut self,
        is_percent: Option<bool>,
        samples: &mut [MetricSample],
    ) -> bool {
        let rules: Vec<bool> = self.rules.iter().map(|rule| rule.has_page_unit).collect();
        let requires_whole = is_percent == Some(true);
        let scale = if requires_whole { UnitScale::Per(100.0) } else { UnitScale::Same };
        for rule in self.rules.iter_mut().filter(|rule| rule.has_page_unit) {
            *rule = ValueRule { scale, has_page_unit: false, requires_whole, ..*rule };
        }
        // A later line may have replaced the value of an earlier one: the sample has it once.
        let mut rule_of_sample = HashMap::<u32, u16, FixedState>::default();
        let mut leaves_out = false;
        for op in &self.ops {
            if let DecodeOp::Read { index, rule } = *op {
                rule_of_sample.insert(index, rule);
            }
        }
        for (index, rule) in rule_of_sample {
            let reading = &mut samples[index as usize].reading;
            if let (true, Reading::Value(value)) = (rules[usize::from(rule)], *reading) {
                let is_left_out = is_percent.is_none() && value > 0.0;
                leaves_out |= is_left_out;
                *reading = if is_left_out {
                    AbsenceReason::Error.into()
                } else {
                    Reading::of(scale.to_catalogue_unit(value))
                };
            }
        }
        leaves_out
    }

    /// Adds a guard: the line has the same meaning only as long as its value is this one.
    pub(super) fn require_value(&mut self, value: f64) -> DecodeOp {
        self.required_values.push(value.to_bits());
        DecodeOp::RequireValue(self.required_values.len() as u32 - 1)
    }

    /// The device that stands for an XID, and its only sample.
    pub(crate) fn xid_device(
        &self,
        xid: ShownXid,
    ) -> (Device, impl Fn(u32) -> MetricSample + use<>) {
        let ShownXid { gpu, code } = xid;
        let key = [self.gpus[gpu as usize].clone(), SanitizedText::new(&code.to_string())];
        let sample = |device| MetricSample {
            metric: gpu_parts::XID_ERRORS,
            device,
            reading: Reading::Value(1.0),
        };
        (Device { class: DeviceClass::Xid, key: key.into() }, sample)
    }

    /// Applies the operation of one line to the samples of a report.
    #[inline]
    pub(crate) fn run(
        &self,
        op: DecodeOp,
        value: f64,
        digits: &[u8],
        samples: &mut [MetricSample],
        side_values: &mut SideValues,
    ) -> Result<(), PlanMismatch> {
        match op {
            DecodeOp::Ignore | DecodeOp::Refuse(_) => {}
            DecodeOp::Read { index, rule } => {
                let rule = &self.rules[usize::from(rule)];
                if rule.requires_whole && digits.contains(&b'.') {
                    return Err(PlanMismatch);
                }
                let reading = rule.apply_rule(value, digits);
                if rule.requires_whole && reading.value().is_some() {
                    side_values.has_one |= is_one(value);
                    side_values.exceeds_one |= value > 1.0;
                }
                samples[index as usize].reading = reading;
            }
            DecodeOp::Add { index, rule } => {
                let addend = self.rules[usize::from(rule)].apply_rule(value, digits);
                add_reading(&mut samples[index as usize].reading, addend);
            }
            DecodeOp::Part(number) => self.run_part_field(number, value, digits, samples),
            DecodeOp::CpuIdle(cpu) => side_values.add_cpu_idle(cpu, value),
            DecodeOp::CpuIowait { index, cpu } => {
                add_reading(&mut samples[index as usize].reading, Reading::of(value));
                side_values.add_cpu_idle(cpu, value);
            }
            DecodeOp::Bits { index, rule } => {
                let bitmask = self.rules[usize::from(rule)].apply_rule(value, digits);
                let samples = samples[index as usize..].iter_mut();
                for (sample, (bit, _)) in samples.zip(gpu::CLOCK_EVENTS) {
                    let is_set = |mask: f64| f64::from(u8::from(mask as u64 & bit != 0));
                    sample.reading = bitmask.value().map_or(bitmask, |mask| is_set(mask).into());
                }
            }
            DecodeOp::Time => {
                if !is_time(value) {
                    return Err(PlanMismatch);
                }
                side_values.time.get_or_insert(UnixMs::from_seconds(value));
            }
            DecodeOp::Xid(gpu) => {
                if let Some(code) = dcgm_values::xid_of_value(value) {
                    side_values.xids.push(ShownXid { gpu, code });
                }
            }
            DecodeOp::RequireValue(index) => {
                if self.required_values[index as usize] != value.to_bits() {
                    return Err(PlanMismatch);
                }
            }
        }
        Ok(())
    }

    fn run_part_field(&self, number: u32, value: f64, digits: &[u8], samples: &mut [MetricSample]) {
        let PartField { own, sums } = self.part_fields[number as usize];
        let reading = |rule: u16| self.rules[usize::from(rule)].apply_rule(value, digits);
        if let Some((index, rule)) = own {
            samples[index as usize].reading = reading(rule);
        }
        for (index, rule) in sums.into_iter().flatten() {
            add_reading(&mut samples[index as usize].reading, reading(rule));
        }
    }

    /// Stores the samples of a report that this plan built, without the values that lines fill in.
    pub(crate) fn store_samples(&mut self, samples: &[MetricSample]) {
        self.samples = samples.to_vec();
        let mut set_samples = |index: u32, count: usize, reading: Reading| {
            for sample in &mut self.samples[index as usize..index as usize + count] {
                sample.reading = reading;
            }
        };
        for op in &self.ops {
            match *op {
                DecodeOp::Read { index, .. } => set_samples(index, 1, AbsenceReason::Error.into()),
                DecodeOp::Bits { index, .. } => {
                    set_samples(index, gpu::CLOCK_EVENTS.len(), AbsenceReason::Error.into());
                }
                DecodeOp::CpuIowait { index, .. } => set_samples(index, 1, 0.0.into()),
                DecodeOp::Part(number) => {
                    let PartField { own, sums } = self.part_fields[number as usize];
                    if let Some((index, _)) = own {
                        set_samples(index, 1, AbsenceReason::Error.into());
                    }
                    for (index, _) in sums.into_iter().flatten() {
                        set_samples(index, 1, 0.0.into());
                    }
                }
                _ => {}
            }
        }
    }

    /// The memory that it uses, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.ops.as_slice())
            + size_of_val(self.samples.as_slice())
            + size_of_val(self.rules.as_slice())
            + size_of_val(self.required_values.as_slice())
            + size_of_val(self.part_fields.as_slice())
            + self.gpus.iter().map(|gpu| size_of::<SanitizedText>() + gpu.len()).sum::<usize>()
    }
}

fn add_reading(sum: &mut Reading, addend: Reading) {
    *sum = match (*sum, addend) {
        (Reading::Value(sum), Reading::Value(addend)) => Reading::of(sum + addend),
        (Reading::Value(_), absent) | (absent, _) => absent,
    };
}

/// Whether it is a plausible clock value.
pub(super) fn is_time(seconds: f64) -> bool {
    (0.0..END_OF_TIME).contains(&seconds)
}
