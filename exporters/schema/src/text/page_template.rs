//! Page templates: all bytes of a page except the values, and the plan for these. A page that repeats the template is
//! matched, and only its values are parsed.

use std::{
    hash::{BuildHasher as _, Hash},
    sync::Arc,
};

use foldhash::fast::FixedState;

use super::{
    PageLimits,
    busiest_cpu::PageInSequence,
    number::{self, LeadingNumber},
    reject_reason::RejectionTally,
};
use crate::{
    CowList, Device, Dialect, FieldCounts, InfoSeries, MetricSample, Report, SanitizedText,
    ScrapedPage,
    dialect::{DecodeOp, DecodePlan, DecodedPage, ShownXid, SideValues},
};

/// A flag in a label's number: the label is in the node's own list.
const OWN: u32 = 1 << 31;

/// The most digits of one value that may match a template; longer values take the strict path.
const MAX_DIGITS: usize = 512;

/// The bytes of a page between its values, without the labels.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TemplateText {
    /// The text between a value and the name of the next sample, and that name: piece after piece.
    text: Vec<u8>,
    /// For each sample, where its piece of the text ends, and which labels follow it.
    lines: Vec<(u32, u32)>,
    /// Whether a timestamp follows each value.
    stamped: bool,
}

/// The labels of a page, each text once, including what separates them from the name and the value.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TemplateLabels {
    text: Vec<u8>,
    /// The range of each label.
    ranges: Vec<(u32, u32)>,
}

/// Everything that a page shares with the previous one of its target.
#[derive(Clone, Debug)]
pub(super) struct PageTemplate {
    pub(super) frame: Arc<TemplateText>,
    /// Labels of lines with values: mostly the same on all nodes.
    pub(super) labels: Arc<TemplateLabels>,
    /// Labels of lines without values, such as info series: mostly specific to the node.
    pub(super) node_labels: Arc<TemplateLabels>,
    pub(super) plan: Arc<DecodePlan>,
    pub(super) devices: CowList<Device>,
    pub(super) infos: CowList<InfoSeries>,
    pub(super) node: Option<SanitizedText>,
    pub(super) dialect: Dialect,
    pub(super) fields: FieldCounts,
}

/// The devices of a template with those of current XIDs: while the XIDs do not change, the list is shared.
#[derive(Debug, Default)]
pub(super) struct XidDevices {
    xids: Vec<ShownXid>,
    devices: CowList<Device>,
}

/// The positions of the parts of a sample line in the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplePosition {
    /// The end of the name.
    pub(super) name: usize,
    /// The first digit of the value.
    pub(super) value: usize,
    /// The end of the value.
    pub(super) end: usize,
    /// The end of the timestamp, if there is one.
    pub(super) stamp: Option<usize>,
    /// The end of the line.
    pub(super) line: usize,
}

impl PageTemplate {
    /// The template of a page that was parsed strictly, and whose sample lines are at the marks; none if it has none: a
    /// line close to a limit, timestamps on some samples only, or a meaning that no plan can hold.
    pub(super) fn of(
        body: &[u8],
        marks: &[SamplePosition],
        decoded: DecodedPage,
        limits: &PageLimits,
    ) -> Option<Self> {
        let DecodedPage { report, dialect, fields, plan, xids, .. } = decoded;
        let mut plan = plan.filter(|plan| plan.ops.len() == marks.len())?;
        let stamped = marks.first()?.stamp.is_some();
        let mut frame =
            TemplateText { text: Vec::new(), lines: Vec::with_capacity(marks.len()), stamped };
        let (mut labels, mut node_labels) = (TemplateLabels::default(), TemplateLabels::default());
        let mut label_numbers: hashbrown::HashMap<&[u8], u32, FixedState> =
            hashbrown::HashMap::default();
        let (mut offset, mut line_start) = (0, 0);
        for (mark, op) in marks.iter().zip(&plan.ops) {
            if mark.stamp.is_some() != stamped
                || mark.line - line_start + MAX_DIGITS * 2 > limits.line_bytes
            {
                return None;
            }
            frame.text.extend_from_slice(body.get(offset..mark.name)?);
            let text = body.get(mark.name..mark.value)?;
            let label = *label_numbers.entry(text).or_insert_with(|| {
                if *op == DecodeOp::Ignore {
                    node_labels.push(text) | OWN
                } else {
                    labels.push(text)
                }
            });
            frame.lines.push((frame.text.len() as u32, label));
            offset = mark.stamp.unwrap_or(mark.end);
            line_start = mark.line;
        }
        frame.text.extend_from_slice(body.get(offset..)?);
        let Report { node, mut devices, infos, samples, .. } = report;
        // The XID devices are not in the template: they come with the values.
        plan.store_samples(&samples[..samples.len() - xids]);
        if xids > 0 {
            let device_count = devices.len() - xids;
            devices.truncate(device_count);
        }
        frame.text.shrink_to_fit();
        let (labels, node_labels) = (labels.into_shrunk().into(), node_labels.into_shrunk().into());
        let (frame, plan) = (frame.into(), plan.into());
        Some(Self { frame, labels, node_labels, plan, devices, infos, node, dialect, fields })
    }

    /// The page, if it repeats the template byte for byte except for its values; the strict reader returns the same
    /// page.
    pub(super) fn match_page(
        &self,
        body: &[u8],
        xid_devices: &mut XidDevices,
    ) -> Option<PageInSequence> {
        let Self { frame, labels, node_labels, plan, .. } = self;
        let mut samples = plan.samples.clone();
        let (mut side_values, mut tally) = (SideValues::default(), RejectionTally::default());
        let (mut offset, mut text_start) = (0, 0);
        for (&(end, label), &op) in frame.lines.iter().zip(&plan.ops) {
            offset = match_bytes(body, offset, frame.text.get(text_start as usize..end as usize)?)?;
            text_start = end;
            let labels = if label & OWN == 0 { labels } else { node_labels };
            offset = match_bytes(body, offset, labels.label_bytes(label & !OWN)?)?;
            let rest = body.get(offset..)?;
            let LeadingNumber { value, length } = number::parse_leading(rest)?;
            let digits = rest.get(..length)?;
            offset += length;
            if frame.stamped {
                offset = skip_timestamp(body, offset)?;
            }
            if length > MAX_DIGITS {
                return None;
            }
            if let DecodeOp::Refuse(reason) = op {
                count_refusal(&mut tally, reason, body, offset);
            }
            plan.run(op, value, digits, &mut samples, &mut side_values).ok()?;
        }
        let tail = frame.text.get(text_start as usize..)?;
        if body.get(offset..)? != tail {
            return None;
        }
        if side_values.lacks_ratio_unit() {
            return None;
        }
        let node_time = side_values.time;
        let devices = self.devices_with_xids(side_values.take_xids(), &mut samples, xid_devices);
        let report = Report {
            node_time,
            node: self.node.clone(),
            devices,
            infos: self.infos.clone(),
            samples,
            extra: Vec::new(),
        };
        let bytes = body.len() as u64;
        let rejected = tally.into_counts(self.fields.clone());
        let page = ScrapedPage { report, dialect: self.dialect, bytes, rejected };
        Some(PageInSequence { page, cpu_idle: side_values.cpu_idle })
    }

    /// The devices of a page with these XIDs; their samples are added.
    fn devices_with_xids(
        &self,
        xids: Vec<ShownXid>,
        samples: &mut Vec<MetricSample>,
        xid_devices: &mut XidDevices,
    ) -> CowList<Device> {
        if xids.is_empty() {
            return self.devices.clone();
        }
        let first = self.devices.len() as u32;
        let is_new = xid_devices.xids != xids;
        if is_new {
            xid_devices.devices = self.devices.clone();
        }
        for (device_index, xid) in (first..).zip(&xids) {
            let (device, sample) = self.plan.xid_device(*xid);
            samples.push(sample(device_index));
            if is_new {
                xid_devices.devices.push(device);
            }
        }
        xid_devices.xids = xids;
        xid_devices.devices.clone()
    }
}

/// The position after `expected`, if the body has it at `offset`.
#[inline]
fn match_bytes(body: &[u8], offset: usize, expected: &[u8]) -> Option<usize> {
    let end = offset + expected.len();
    (body.get(offset..end)? == expected).then_some(end)
}

/// The position after the timestamp that follows the blank at `offset`.
fn skip_timestamp(body: &[u8], offset: usize) -> Option<usize> {
    let rest = body.get(offset..)?.strip_prefix(b" ")?;
    let length = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+'))?;
    let text = std::str::from_utf8(rest.get(..length)?).ok()?;
    number::parse_timestamp(text)?;
    (length <= MAX_DIGITS).then_some(offset + 1 + length)
}

/// Counts a line that is rejected for any value; the value ends at `offset`.
fn count_refusal(tally: &mut RejectionTally, reason: super::Reason, body: &[u8], offset: usize) {
    let start = memchr::memrchr(b'\n', &body[..offset]).map_or(0, |newline| newline + 1);
    let rest = &body[offset..];
    let end = offset + memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let line = &body[start..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    tally.count_line_with(reason, line, || {
        memchr::memchr_iter(b'\n', &body[..start]).count() as u64 + 1
    });
}

impl TemplateText {
    /// The memory that it uses, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.text.len() + size_of_val(self.lines.as_slice())
    }
}

impl TemplateLabels {
    /// Adds a label and returns its number.
    fn push(&mut self, text: &[u8]) -> u32 {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        self.ranges.push((start, self.text.len() as u32));
        self.ranges.len() as u32 - 1
    }

    /// The same without spare capacity.
    fn into_shrunk(mut self) -> Self {
        self.text.shrink_to_fit();
        self.ranges.shrink_to_fit();
        self
    }

    /// The label with this number.
    #[inline]
    fn label_bytes(&self, label: u32) -> Option<&[u8]> {
        let (from, to) = *self.ranges.get(label as usize)?;
        self.text.get(from as usize..to as usize)
    }

    /// The memory that it uses, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.text.len() + size_of_val(self.ranges.as_slice())
    }
}

/// A hash of the content: equal contents have equal hashes, and candidates with an equal hash are compared.
pub(super) fn content_hash(content: &impl Hash) -> u64 {
    FixedState::default().hash_one(content)
}
