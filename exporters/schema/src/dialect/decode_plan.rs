//! What becomes of each value of a page: decided once from names and labels, done again on every page like it.

use super::dcgm_exporter;
use crate::{
    AbsenceReason, Device, DeviceClass, MetricId, MetricSample, Reading, SanitizedText, UnixMs,
    catalogue::{UnitScale, gpu, gpu_parts},
    text::Reason,
    unit::{CounterWidth, MetricKind},
};

/// The year 10,000 in seconds since the epoch: a clock that shows more is broken, and differences to it would not
/// fit into an instant.
const END_OF_TIME: f64 = 253_402_300_800.0;

/// Which values stand for no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BlankValues {
    /// None but those that are not finite.
    Never,
    /// Those of DCGM, in a gauge.
    DcgmGauge,
    /// Those of DCGM that a counter cannot reach in good faith.
    DcgmCounter,
    /// Whatever is below zero.
    Negative,
    /// The largest number of 16, 32 or 64 bits: what AMD's library has where there is nothing.
    AllOnes,
}

/// From a value to a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ValueRule {
    /// From their unit to ours.
    pub(super) scale: UnitScale,
    /// What is no value.
    pub(super) blank: BlankValues,
    /// Where the counter stands still.
    pub(super) end: Option<f64>,
    /// The one value that means yes, where all others mean no.
    pub(super) true_value: Option<f64>,
}

impl ValueRule {
    /// The rule of a row that is told in another unit.
    pub(super) fn of(metric: MetricId, scale: UnitScale, blank: BlankValues) -> Self {
        // Exactly at its end it stands still; above it the counter of this device is wider than the table knows.
        let end = match metric.catalogue_row().kind {
            MetricKind::Counter(width @ CounterWidth::Saturating(_)) => width.max_value(),
            _ => None,
        };
        let blank = match (blank, metric.catalogue_row().kind) {
            (BlankValues::DcgmGauge, MetricKind::Counter(_)) => BlankValues::DcgmCounter,
            _ => blank,
        };
        Self { scale, blank, end, true_value: None }
    }

    /// The reading that a value stands for.
    #[inline]
    pub(super) fn apply_rule(&self, value: f64, digits: &[u8]) -> Reading {
        if let Some(reason) = self.blank.of(value, digits) {
            return reason.into();
        }
        if let Some(yes) = self.true_value {
            let told = if value.is_nan() {
                value
            } else {
                f64::from(u8::from(value.to_bits() == yes.to_bits()))
            };
            return Reading::of(told);
        }
        if self.end == Some(value) {
            return AbsenceReason::Saturated.into();
        }
        Reading::of(self.scale.to_catalogue_unit(value))
    }
}

impl BlankValues {
    #[inline]
    fn of(self, value: f64, digits: &[u8]) -> Option<AbsenceReason> {
        match self {
            Self::Never => None,
            Self::DcgmGauge => dcgm_exporter::blank_reason(true, value, digits),
            Self::DcgmCounter => dcgm_exporter::blank_reason(false, value, digits),
            Self::Negative => (value < 0.0).then_some(AbsenceReason::Unsupported),
            Self::AllOnes => {
                let ends = [f64::from(u16::MAX), f64::from(u32::MAX), u64::MAX as f64];
                ends.contains(&value).then_some(AbsenceReason::Unsupported)
            }
        }
    }
}

/// What becomes of the value of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DecodeOp {
    /// Nothing, whatever it is.
    Ignore,
    /// It is the reading of this sample of the report.
    Read { at: u32, rule: u16 },
    /// It is added to this sample.
    Add { at: u32, rule: u16 },
    /// Its bits are the readings of the clock-event reasons, from this sample on.
    Bits { at: u32, rule: u16 },
    /// It is the XID that this GPU of the plan showed last: it names a device, if it is one.
    Xid(u32),
    /// It is the node's clock.
    Time,
    /// What the line means hangs on its value: it must be the one of this number.
    RequireValue(u32),
    /// The line is refused.
    Refuse(Reason),
}

/// What the values of a page tell beside the readings of its samples.
#[derive(Debug, Default)]
pub(crate) struct SideValues {
    /// The node's clock.
    pub(crate) time: Option<UnixMs>,
    xids: Vec<ShownXid>,
}

/// An XID that a GPU of a plan showed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShownXid {
    gpu: u32,
    code: u32,
}

impl SideValues {
    /// The XIDs that GPUs show, each once and in one order, wherever on the page they stand.
    pub(crate) fn into_xids(mut self) -> Vec<ShownXid> {
        self.xids.sort_unstable();
        self.xids.dedup();
        self.xids
    }
}

/// The value changes what the page means.
#[derive(Debug)]
pub(crate) struct PlanMismatch;

/// What becomes of every line of a page, and the samples that come of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DecodePlan {
    /// One for each sample line, in order.
    pub(crate) ops: Vec<DecodeOp>,
    /// The samples of the report; those that no line fills are what they are on every page.
    pub(crate) samples: Vec<MetricSample>,
    rules: Vec<ValueRule>,
    required_values: Vec<u64>,
    /// The GPUs that have a line for their last XID.
    pub(super) gpus: Vec<SanitizedText>,
}

impl DecodePlan {
    /// The number of a rule, added if it is new.
    pub(super) fn ensure_rule(&mut self, rule: ValueRule) -> u16 {
        // A page has a dozen rules, and the last one is mostly the next one.
        let known = self.rules.iter().rposition(|known| *known == rule);
        known.unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        }) as u16
    }

    /// A line that means the same only as long as its value is this one.
    pub(super) fn require_value(&mut self, value: f64) -> DecodeOp {
        self.required_values.push(value.to_bits());
        DecodeOp::RequireValue(self.required_values.len() as u32 - 1)
    }

    /// The device that stands for an XID, and its only sample.
    pub(crate) fn xid_device(
        &self,
        shown: ShownXid,
    ) -> (Device, impl Fn(u32) -> MetricSample + use<>) {
        let ShownXid { gpu, code } = shown;
        let key = [self.gpus[gpu as usize].clone(), SanitizedText::new(&code.to_string())];
        let sample = |device| MetricSample {
            metric: gpu_parts::XID_ERRORS,
            device,
            reading: Reading::Value(1.0),
        };
        (Device { class: DeviceClass::Xid, key: key.into() }, sample)
    }

    /// Does with the value of one line what is planned, on the samples of a report.
    #[inline]
    pub(crate) fn run(
        &self,
        op: DecodeOp,
        value: f64,
        digits: &[u8],
        samples: &mut [MetricSample],
        aside: &mut SideValues,
    ) -> Result<(), PlanMismatch> {
        match op {
            DecodeOp::Ignore | DecodeOp::Refuse(_) => {}
            DecodeOp::Read { at, rule } => {
                samples[at as usize].reading =
                    self.rules[usize::from(rule)].apply_rule(value, digits);
            }
            DecodeOp::Add { at, rule } => {
                let sum = &mut samples[at as usize].reading;
                let more = self.rules[usize::from(rule)].apply_rule(value, digits);
                *sum = match (*sum, more) {
                    (Reading::Value(sum), Reading::Value(more)) => Reading::of(sum + more),
                    (Reading::Value(_), absent) | (absent, _) => absent,
                };
            }
            DecodeOp::Bits { at, rule } => {
                let whole = self.rules[usize::from(rule)].apply_rule(value, digits);
                let samples = samples[at as usize..].iter_mut();
                for (sample, (bit, _)) in samples.zip(gpu::CLOCK_EVENTS) {
                    let held = |mask: f64| f64::from(u8::from(mask as u64 & bit != 0));
                    sample.reading = whole.value().map_or(whole, |mask| held(mask).into());
                }
            }
            DecodeOp::Time => {
                if !is_time(value) {
                    return Err(PlanMismatch);
                }
                aside.time.get_or_insert(UnixMs::from_seconds(value));
            }
            DecodeOp::Xid(gpu) => {
                if let Some(code) = dcgm_exporter::xid_of_value(value) {
                    aside.xids.push(ShownXid { gpu, code });
                }
            }
            DecodeOp::RequireValue(at) => {
                if self.required_values[at as usize] != value.to_bits() {
                    return Err(PlanMismatch);
                }
            }
        }
        Ok(())
    }

    /// Takes the samples of a report that was made by this plan, without the values that lines fill in.
    pub(crate) fn store_samples(&mut self, samples: &[MetricSample]) {
        self.samples = samples.to_vec();
        let mut clear = |at: u32, count: usize| {
            for sample in &mut self.samples[at as usize..at as usize + count] {
                sample.reading = AbsenceReason::Error.into();
            }
        };
        for op in &self.ops {
            match *op {
                DecodeOp::Read { at, .. } | DecodeOp::Add { at, .. } => clear(at, 1),
                DecodeOp::Bits { at, .. } => clear(at, gpu::CLOCK_EVENTS.len()),
                _ => {}
            }
        }
    }

    /// The bytes that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.ops.as_slice())
            + size_of_val(self.samples.as_slice())
            + size_of_val(self.rules.as_slice())
            + size_of_val(self.required_values.as_slice())
            + self.gpus.iter().map(|gpu| size_of::<SanitizedText>() + gpu.len()).sum::<usize>()
    }
}

/// Whether it is an instant that a clock may show.
pub(super) fn is_time(seconds: f64) -> bool {
    (0.0..END_OF_TIME).contains(&seconds)
}
