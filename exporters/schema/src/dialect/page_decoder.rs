//! Decodes each sample of a page by name, and builds the report, its plan and the page's dialect.

use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};

use super::{
    CUSTOM_HANDLERS, Dialect, TABLES, absence,
    custom_handler::CustomHandler,
    dcgm_exporter::DcgmDecoder,
    dcgm_new_names::{self, DcgmField},
    dcgm_ratio_unit::{RATIO_FIELD, RATIO_WITHOUT_UNIT},
    decode_plan::{self, BlankValues, DecodeOp, DecodePlan, SideValues, ValueRule},
    dialect_table::{DecodeContext, DialectTable, NameMapping},
    node_exporter::NodeExporterDecoder,
    report_builder::ReportBuilder,
    total_suffix::{self, NameSet, TotalNames},
};
use crate::{
    AbsenceReason, CowList, Device, DeviceClass, FieldCounts, InfoSeries, MAX_FIELD_NAMES, Report,
    SanitizedText,
    catalogue::{NamedRows, find_rows, host},
    sanitized_text::TextInterner,
    text::{Reason, TextSample, page_writer::NODE},
    unit::MetricKind,
};

/// The beginning of the name of every field that dcgm-exporter reads from DCGM.
const FIELD_PREFIX: &str = "DCGM_FI_";

/// The labels that a Prometheus adds to the series of a target.
const INSTANCE: &str = "instance";
const JOB: &str = "job";

/// The handler of a metric name.
#[derive(Clone, Copy, Debug)]
enum MetricHandler {
    /// A catalogue row, or several that differ in a label.
    Row(NamedRows),
    /// A mapping of an exporter's table.
    Mapped(&'static DialectTable, &'static [NameMapping]),
    /// The absence mark.
    Absence,
    /// A dcgm-exporter field under a name of DCGM 4.6 or later, and whether only pages in base units have it.
    DcgmField(&'static DcgmField, bool),
    /// A dcgm-exporter series that is not one row.
    Dcgm,
    /// A node_exporter series that is not one row.
    NodeExporter,
    /// A series of another exporter that no table can express.
    Custom(&'static CustomHandler),
    /// An unknown name.
    Unknown,
}

impl MetricHandler {
    /// Whether the name is of an exporter whose counters a collector may have renamed.
    const fn may_have_total(self) -> bool {
        match self {
            Self::Row(named) => matches!(named.dialect, Dialect::Dcgm),
            Self::Mapped(table, _) => matches!(table.dialect, Dialect::Amd),
            Self::DcgmField(..) | Self::Dcgm => true,
            _ => false,
        }
    }
}

/// Decodes the samples of one page, in order.
#[derive(Debug)]
pub(crate) struct PageDecoder<'a> {
    builder: ReportBuilder<'a>,
    dcgm: DcgmDecoder<'a>,
    node_exporter: NodeExporterDecoder<'a>,
    context: DecodeContext,
    side_values: SideValues,
    /// The label texts that describe devices.
    texts: TextInterner,
    /// The host of the first series that a Prometheus took from a target, as it names the target.
    scraped_host: Option<&'a str>,
    /// The last name: samples of one metric are mostly adjacent.
    last: ResolvedName<'a>,
    /// The names that a collector may have appended `_total` to; none where its format says which ones it has.
    total_names: Option<TotalNames<'a>>,
    /// Decoded samples, by dialect.
    counts: [u64; Dialect::ALL.len()],
    /// The fields of dcgm-exporter.
    fields: FieldNames<'a>,
    /// Whether no sample has been understood so far.
    is_unread: bool,
    /// The other names until then: those of a page of which nothing is understood.
    other_names: FieldNames<'a>,
}

/// A name on a page.
#[derive(Clone, Copy, Debug)]
struct ResolvedName<'a> {
    /// The name.
    name: &'a str,
    /// The name under which an exporter reports it: without the `_total` of a collector.
    plain: &'a str,
    handler: MetricHandler,
}

/// The names of fields on a page: those that are known, and the others.
#[derive(Debug, Default)]
struct FieldNames<'a> {
    known: HashSet<&'a str, foldhash::fast::RandomState>,
    unknown: HashSet<&'a str, foldhash::fast::RandomState>,
}

impl<'a> FieldNames<'a> {
    fn add_name(&mut self, name: &'a str, is_known: bool) {
        let names = if is_known { &mut self.known } else { &mut self.unknown };
        names.insert(name);
    }

    /// Counts a field as not understood, and lists it with the reason.
    fn move_to_unknown(&mut self, name: &'static str, described: &'static str) {
        self.known.remove(name);
        self.unknown.insert(described);
    }

    /// The counts, if there is an unknown field.
    fn into_counts(self) -> FieldCounts {
        if self.unknown.is_empty() {
            return FieldCounts::default();
        }
        let mut names: Vec<&str> = self.unknown.iter().copied().collect();
        names.sort_unstable();
        names.truncate(MAX_FIELD_NAMES);
        FieldCounts {
            known: self.known.len() as u32,
            unknown: self.unknown.len() as u32,
            names: names.into_iter().map(SanitizedText::new).collect(),
        }
    }
}

/// A decoded page, and the plan for the next one with its template.
#[derive(Debug)]
pub(crate) struct DecodedPage {
    /// The report.
    pub(crate) report: Report,
    /// The dialect of most samples.
    pub(crate) dialect: Dialect,
    /// The fields that were not understood.
    pub(crate) fields: FieldCounts,
    /// The operation of each line, unless a line has a meaning that no plan can hold.
    pub(crate) plan: Option<DecodePlan>,
    /// How many devices at the end of the report, with a sample each, stand for current XIDs. They come and go while
    /// the plan stays.
    pub(crate) xids: usize,
    /// The seconds without work of each CPU, in the order of the page; empty if it has none.
    pub(crate) cpu_idle: Vec<f64>,
}

impl Default for PageDecoder<'_> {
    fn default() -> Self {
        Self {
            builder: ReportBuilder::default(),
            dcgm: DcgmDecoder::default(),
            node_exporter: NodeExporterDecoder::default(),
            context: DecodeContext::default(),
            side_values: SideValues::default(),
            texts: TextInterner::default(),
            scraped_host: None,
            last: ResolvedName { name: "", plain: "", handler: MetricHandler::Unknown },
            total_names: Some(TotalNames::default()),
            counts: [0; Dialect::ALL.len()],
            fields: FieldNames::default(),
            is_unread: true,
            other_names: FieldNames::default(),
        }
    }
}

impl<'a> PageDecoder<'a> {
    /// Decodes one sample. An unknown name is ignored; that is no error.
    pub(crate) fn decode_sample(&mut self, sample: &TextSample<'_, 'a>) -> Result<(), Reason> {
        if self.last.name != sample.name {
            self.last = self.resolve_name(sample.name);
        }
        let sample = &TextSample { name: self.last.plain, ..*sample };
        if matches!(self.last.handler, MetricHandler::Unknown) {
            self.builder.plan.ops.push(DecodeOp::Ignore);
            return Ok(());
        }
        if self.is_other_target(sample) {
            self.builder.plan.ops.push(DecodeOp::Refuse(Reason::OtherNode));
            return Err(Reason::OtherNode);
        }
        let (dialect, op) = match self.last.handler {
            MetricHandler::Unknown => return Ok(()),
            MetricHandler::Row(named) => (named.dialect, self.decode_row(named, sample)),
            MetricHandler::Mapped(table, mappings) => {
                let Some(mapping) = mappings.iter().find(|one| one.matches_sample(sample)) else {
                    // Another exporter's series of the same name, or one that is not read.
                    self.builder.plan.ops.push(DecodeOp::Ignore);
                    return Ok(());
                };
                let (context, builder) = (&mut self.context, &mut self.builder);
                (table.dialect, table.decode_series(mapping, context, builder, sample))
            }
            MetricHandler::Absence => {
                (Dialect::Gaunt, absence::decode_absence(&mut self.builder, sample))
            }
            MetricHandler::DcgmField(field, is_base_unit) => {
                let field = (field, is_base_unit);
                (Dialect::Dcgm, self.dcgm.decode_new_field(&mut self.builder, sample, field))
            }
            MetricHandler::Dcgm => {
                (Dialect::Dcgm, self.dcgm.decode_series(&mut self.builder, sample))
            }
            MetricHandler::NodeExporter => {
                (Dialect::NodeExporter, self.node_exporter.decode_series(&mut self.builder, sample))
            }
            MetricHandler::Custom(handler) => {
                (handler.dialect, (handler.decode)(&mut self.context, &mut self.builder, sample))
            }
        };
        let ReportBuilder { plan, report, .. } = &mut self.builder;
        plan.ops.push(op.unwrap_or_else(DecodeOp::Refuse));
        let op = op?;
        self.counts[dialect as usize] += 1;
        self.is_unread = false;
        let digits = sample.digits.as_bytes();
        let run = plan.run(op, sample.value, digits, &mut report.samples, &mut self.side_values);
        self.builder.not_replayable |= run.is_err();
        Ok(())
    }

    /// A decoder of a page that has these names without the `_total` of a collector, too.
    pub(crate) fn of_page_with(plain_names: NameSet<'a>) -> Self {
        Self { total_names: Some(TotalNames::of_page(plain_names)), ..Self::default() }
    }

    /// A decoder of names that are those of the exporter: the format of the page told which ones had a `_total` appended.
    pub(crate) fn of_exact_names() -> Self {
        Self { total_names: None, ..Self::default() }
    }

    /// The names that were read with the `_total` of a collector, and came without it later: such a page is to be decoded
    /// again, by a decoder that knows them.
    pub(crate) fn take_ambiguous_names(&mut self) -> NameSet<'a> {
        self.total_names.as_mut().map(TotalNames::take_ambiguous).unwrap_or_default()
    }

    /// Finds the handler of another name than that of the last sample, and records the name.
    fn resolve_name(&mut self, name: &'a str) -> ResolvedName<'a> {
        let appended = self.total_names.as_ref().and_then(|_| total_suffix::plain_name(name));
        let plain = appended.map_or(name, |plain| &name[..plain.len()]);
        let mut handler = find_handler(plain);
        if name.starts_with(FIELD_PREFIX) {
            self.fields.add_name(plain, !matches!(handler, MetricHandler::Unknown));
        } else if self.is_unread {
            self.other_names.add_name(name, false);
        }
        if let Some(total_names) = &mut self.total_names {
            if appended.is_some() && !total_names.add_appended(plain) {
                handler = MetricHandler::Unknown;
            } else if appended.is_none() && handler.may_have_total() {
                total_names.add_plain(name);
            }
        }
        ResolvedName { name, plain, handler }
    }

    /// The report, the dialect of most samples, and the plan.
    pub(crate) fn into_decoded_page(mut self) -> DecodedPage {
        self.node_exporter.add_infos(&mut self.builder);
        self.dcgm.add_infos(&mut self.builder.report);
        self.apply_ratio_unit();
        self.builder.apply_aliases();
        self.builder.report.node_time = self.side_values.time;
        let before = self.builder.report.devices.len();
        self.add_xids();
        let xids = self.builder.report.devices.len() - before;
        let ReportBuilder { mut report, plan, not_replayable, .. } = self.builder;
        report.infos.shrink_to_fit();
        let foreign_name = || self.dcgm.node.or(self.context.node).or(self.node_exporter.node);
        report.node = report.node.or_else(foreign_name);
        let mut most_samples = (0, Dialect::Unknown);
        for (count, dialect) in self.counts.into_iter().zip(Dialect::ALL) {
            if count > most_samples.0 {
                most_samples = (count, dialect);
            }
        }
        if self.is_unread {
            self.fields.unknown.extend(self.other_names.unknown);
        }
        DecodedPage {
            report,
            dialect: most_samples.1,
            fields: self.fields.into_counts(),
            plan: (!not_replayable).then_some(plan),
            xids,
            cpu_idle: self.side_values.cpu_idle,
        }
    }

    /// Whether a series is of a target at another host than the first one, as the labels show that a Prometheus adds to what it
    /// scrapes: a page of a federation or of a collector has the series of several targets.
    fn is_other_target(&mut self, sample: &TextSample<'_, 'a>) -> bool {
        let Some(instance) = sample.find_label(INSTANCE) else { return false };
        let is_key = match self.last.handler {
            MetricHandler::Row(named) => {
                named.first.catalogue_row().class.key_label_names().contains(&INSTANCE)
            }
            _ => false,
        };
        if is_key || sample.find_label(JOB).is_none() {
            return false;
        }
        let host = instance.raw.rsplit_once(':').map_or(instance.raw, |(host, _)| host);
        *self.scraped_host.get_or_insert(host) != host
    }

    /// Decides whether ratios that may be percentages are such.
    fn apply_ratio_unit(&mut self) {
        let Some(unit) = self.dcgm.ratio_evidence.find_unit() else { return };
        let ReportBuilder { plan, report, not_replayable, .. } = &mut self.builder;
        *not_replayable |= unit.depends_on_values();
        if plan.apply_page_unit(unit.is_percent(), &mut report.samples) {
            self.fields.move_to_unknown(RATIO_FIELD, RATIO_WITHOUT_UNIT);
        }
    }

    /// Adds the XIDs of the GPUs, after all else.
    fn add_xids(&mut self) {
        let ReportBuilder { plan, report, not_replayable, .. } = &mut self.builder;
        if plan.gpus.is_empty() {
            return;
        }
        let devices =
            report.devices.iter().filter(|device| device.class == DeviceClass::Xid).cloned();
        let present: HashSet<Device, foldhash::fast::RandomState> = devices.collect();
        // Whether an XID adds to these depends on its value.
        *not_replayable |= !present.is_empty();
        for xid in self.side_values.take_xids() {
            let (device, sample) = plan.xid_device(xid);
            if !present.contains(&device) {
                report.samples.push(sample(report.devices.len() as u32));
                report.devices.push(device);
            }
        }
    }

    fn decode_row(
        &mut self,
        named: NamedRows,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let row = named.first.catalogue_row();
        if row.class == DeviceClass::Fleet {
            // An aggregator's metrics of a whole fleet are not about this node.
            return Ok(DecodeOp::Ignore);
        }
        if named.dialect == Dialect::Dcgm {
            let rule = ValueRule::of(named.first, named.scale, BlankValues::DcgmGauge);
            return self.dcgm.decode_field(&mut self.builder, sample, named.first, rule);
        }
        let device = self.builder.device_of_sample(row.class, sample).ok_or(Reason::NoDevice)?;
        if row.kind == MetricKind::Info {
            self.decode_info(named, device, sample);
            return Ok(DecodeOp::Ignore);
        }
        let metric = match row.tag {
            Some((label, _)) if named.dialect == Dialect::Gaunt => {
                let value = sample.find_label(label).map(crate::text::SeriesLabel::unescaped_value);
                match absence::find_tagged_row(named, value.as_deref()) {
                    Some(metric) => metric,
                    // A label value that only a newer gaunt knows.
                    None => return Ok(DecodeOp::Ignore),
                }
            }
            // A foreign name stands for one row.
            _ => named.first,
        };
        if metric == host::NODE_TIME {
            return self.decode_time(device, sample);
        }
        let blank = match named.dialect {
            // An interface without a rate reports minus one.
            Dialect::NodeExporter if metric == host::NETDEV_SPEED => BlankValues::Negative,
            _ => BlankValues::Never,
        };
        let rule = ValueRule::of(metric, named.scale, blank);
        if named.dialect == Dialect::Gaunt {
            self.builder.has_own_names = true;
            return self.builder.plan_reading(device, metric, rule);
        }
        self.builder.plan_foreign_reading(device, metric, rule)
    }

    /// Decodes the node's clock, which belongs to the page and is no sample of it, unless it is not a valid time.
    fn decode_time(
        &mut self,
        device: u32,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        if decode_plan::is_time(sample.value) {
            return Ok(DecodeOp::Time);
        }
        self.builder.not_replayable = true;
        self.builder.add_constant(device, host::NODE_TIME, AbsenceReason::Error)?;
        Ok(DecodeOp::Ignore)
    }

    fn decode_info(&mut self, named: NamedRows, device: u32, sample: &TextSample<'_, 'a>) {
        let metric = named.first;
        let key_labels = metric.catalogue_row().class.key_label_names();
        let rest = sample.labels.iter().filter(|label| !key_labels.contains(&label.name));
        let texts = &mut self.texts;
        let labels = rest.map(|label| {
            (texts.intern_text(label.name), texts.intern_text(&label.unescaped_value()))
        });
        let mut labels: Vec<(SanitizedText, SanitizedText)> = labels.collect();
        // They stay as long as the target's template.
        labels.shrink_to_fit();
        let labels = CowList::from(labels);
        let report = &mut self.builder.report;
        if metric == host::NODE_INFO && report.node.is_none() {
            let node = labels.iter().find(|(name, value)| *name == NODE && !value.is_empty());
            report.node = node.map(|(_, value)| value.clone());
        }
        report.infos.push(InfoSeries { metric, device, labels });
    }
}

/// Whether the name is known.
pub(crate) fn is_known_name(name: &str) -> bool {
    !matches!(find_handler(name), MetricHandler::Unknown)
}

fn find_handler(name: &str) -> MetricHandler {
    match find_rows(name) {
        Some(named) => MetricHandler::Row(named),
        None if name == absence::NAME => MetricHandler::Absence,
        None if DcgmDecoder::is_known_name(name) => MetricHandler::Dcgm,
        None if NodeExporterDecoder::is_known_name(name) => MetricHandler::NodeExporter,
        None => WORDS.get(name).copied().unwrap_or(MetricHandler::Unknown),
    }
}

/// The new names of dcgm-exporter, and whether only pages in base units have them.
static DCGM_FIELDS: [(&[DcgmField], bool); 2] =
    [(&dcgm_new_names::RENAMED, false), (&dcgm_new_names::BASE_UNITS, true)];

type HandlersByName = HashMap<&'static str, MetricHandler, foldhash::fast::FixedState>;

/// The handlers of all tables by name.
static WORDS: LazyLock<HandlersByName> = LazyLock::new(|| {
    let mut handlers = HandlersByName::default();
    for table in &TABLES {
        for mappings in table.mappings.chunk_by(|left, right| left.name == right.name) {
            handlers.insert(mappings[0].name, MetricHandler::Mapped(table, mappings));
        }
    }
    for (fields, is_base_unit) in DCGM_FIELDS {
        for field in fields {
            handlers.insert(field.name, MetricHandler::DcgmField(field, is_base_unit));
        }
    }
    for handler in CUSTOM_HANDLERS.iter().copied().flatten() {
        handlers.insert(handler.name, MetricHandler::Custom(handler));
    }
    handlers
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_metric_names_are_unique() {
        let mut names = std::collections::HashSet::new();
        for table in &TABLES {
            for mappings in table.mappings.chunk_by(|left, right| left.name == right.name) {
                assert!(
                    names.insert(mappings[0].name),
                    "{} is declared twice, or not adjacent",
                    mappings[0].name
                );
                assert!(
                    find_rows(mappings[0].name).is_none(),
                    "{} is in the catalogue",
                    mappings[0].name
                );
            }
        }
        for field in DCGM_FIELDS.iter().flat_map(|(fields, _)| *fields) {
            assert!(names.insert(field.name), "{} is declared twice", field.name);
            assert!(find_rows(field.name).is_none(), "{} is in the catalogue", field.name);
        }
        for handler in CUSTOM_HANDLERS.iter().copied().flatten() {
            assert!(names.insert(handler.name), "{} is declared twice", handler.name);
        }
    }
}
