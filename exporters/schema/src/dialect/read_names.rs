//! The names that are read, for whoever asks a store for them by name.

use super::{absence, dialect_reference::dialect_metrics, total_suffix};
use crate::{DeviceClass, MetricId};

/// A name that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadName {
    /// The name.
    pub name: &'static str,
    /// Whether all rows of the catalogue that it becomes change rarely.
    pub changes_rarely: bool,
}

/// Every name that a dialect reads from the page of a node or a fabric, with those to which a collector appends `_total`,
/// sorted. An aggregator's own metrics of a whole fleet, and names that are known and not read, are left out.
pub fn read_names() -> Vec<ReadName> {
    let read_name = |name, metric: Option<MetricId>| ReadName {
        name,
        changes_rarely: metric.is_some_and(|metric| metric.catalogue_row().changes_rarely),
    };
    let own_ids = MetricId::all_ids().filter(|id| id.catalogue_row().class != DeviceClass::Fleet);
    let own_names = own_ids.map(|id| read_name(id.catalogue_row().name, Some(id)));
    let foreign = dialect_metrics().into_iter().filter(|entry| entry.declined.is_none());
    let foreign = foreign.map(|entry| read_name(entry.name, entry.metric));
    let mut names: Vec<ReadName> =
        own_names.chain([read_name(absence::NAME, None)]).chain(foreign).collect();
    // Of a name that becomes several rows, the first in this order changes often if any does.
    names.sort_unstable();
    names.dedup_by_key(|read| read.name);
    let with_total: Vec<ReadName> = total_suffix::total_names()
        .filter_map(|(name, plain)| {
            let index = names.binary_search_by_key(&plain, |read| read.name).ok()?;
            Some(ReadName { name, ..names[index] })
        })
        .collect();
    names.extend(with_total);
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::is_known_name;

    #[test]
    fn read_names_are_known_and_a_fleet_is_not_among_them() {
        let names = read_names();
        assert!(names.is_sorted() && names.len() > 500, "{}", names.len());
        let rare = |name: &str| names.iter().find(|it| it.name == name).unwrap().changes_rarely;
        assert!(rare("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL") && rare("DCGM_FI_DEV_FB_TOTAL"));
        for name in [
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            "DCGM_FI_DEV_ROW_REMAP_FAILED",
            "node_uname_info",
            "gaunt_gpu_job_info",
        ] {
            assert!(!rare(name), "{name} is read at each refresh");
        }
        // A Prometheus may have them from a collector.
        assert!(
            rare("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL_total") && !rare("DCGM_FI_DEV_XID_ERRORS_total")
        );
        assert!(!rare("pcie_replay_count_total"));
        let names: Vec<&str> = names.iter().map(|read| read.name).collect();
        for name in &names {
            let plain = total_suffix::plain_name(name).unwrap_or(name);
            assert!(is_known_name(plain), "{name}");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
            assert!(name.bytes().all(is_plain), "{name} needs no escapes in a query");
        }
        for name in ["DCGM_FI_DEV_GPU_UTIL", "node_uname_info", "gaunt_absent", "gaunt_gpu_info"] {
            assert!(names.contains(&name), "{name}");
        }
        for name in ["gaunt_lost_gpus", "up", "node_cpu_guest_seconds_total"] {
            assert!(!names.contains(&name), "{name}");
        }
    }
}
