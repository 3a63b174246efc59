//! Names to which a collector has appended `_total`: OpenMetrics demands it of counters, and OpenTelemetry's exporters follow.

use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};

use super::{Dialect, DialectMetric, dialect_reference::dialect_metrics};
use crate::{MetricId, unit::MetricKind};

/// What is appended.
const SUFFIX: &str = "_total";

/// A set of names on a page.
pub(crate) type NameSet<'a> = HashSet<&'a str, foldhash::fast::RandomState>;

/// The names with the suffix, and those that they stand for.
static PLAIN_NAMES: LazyLock<HashMap<String, &'static str, foldhash::fast::FixedState>> =
    LazyLock::new(|| {
        let entries = dialect_metrics().into_iter().filter(has_total_form);
        entries.map(|entry| (format!("{}{SUFFIX}", entry.name), entry.name)).collect()
    });

/// Whether a collector may append the suffix. The list of fields of dcgm-exporter gives any of them the type of a counter;
/// AMD's exporter has the types of its tables.
fn has_total_form(entry: &DialectMetric) -> bool {
    let is_counter = || {
        let row = entry.metric.map(MetricId::catalogue_row);
        row.is_some_and(|row| matches!(row.kind, MetricKind::Counter(_)))
    };
    entry.declined.is_none()
        && !entry.name.ends_with(SUFFIX)
        && match entry.dialect {
            Dialect::Dcgm => true,
            Dialect::Amd => is_counter(),
            _ => false,
        }
}

/// The name for which this one stands, if it has the suffix.
pub(super) fn plain_name(name: &str) -> Option<&'static str> {
    let has_suffix = name.ends_with(SUFFIX);
    has_suffix.then(|| PLAIN_NAMES.get(name).copied()).flatten()
}

/// Every name with the suffix, with the one that it stands for.
pub(super) fn total_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    PLAIN_NAMES.iter().map(|(total, plain)| (total.as_str(), *plain))
}

/// The names of a page that may have the suffix. One with it is not read on a page that has the name without it, too.
#[derive(Debug, Default)]
pub(super) struct TotalNames<'a> {
    /// The names without it that the page has, or are known to be on it.
    plain: NameSet<'a>,
    /// The names that were read with it, as they are without it.
    appended: NameSet<'a>,
}

impl<'a> TotalNames<'a> {
    /// The names of a page that has these without the suffix.
    pub(super) fn of_page(plain: NameSet<'a>) -> Self {
        Self { plain, appended: NameSet::default() }
    }

    /// Records a name without the suffix.
    pub(super) fn add_plain(&mut self, name: &'a str) {
        self.plain.insert(name);
    }

    /// Records a name that has the suffix on the page; whether it is read.
    pub(super) fn add_appended(&mut self, name: &'a str) -> bool {
        let is_read = !self.plain.contains(name);
        if is_read {
            self.appended.insert(name);
        }
        is_read
    }

    /// The names that were read with the suffix before the page had them without it.
    pub(super) fn take_ambiguous(&mut self) -> NameSet<'a> {
        let plain = &self.plain;
        self.appended.drain().filter(|name| plain.contains(name)).collect()
    }
}
