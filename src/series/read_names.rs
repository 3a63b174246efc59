//! Names to query: those of the server that a dialect reads.

use std::{collections::HashSet, sync::LazyLock};

use foldhash::fast::RandomState;
use gaunt_schema::dialect;

/// The names that a dialect reads.
static READ: LazyLock<HashSet<&'static str, RandomState>> =
    LazyLock::new(|| dialect::read_names().into_iter().collect());

/// How many names gaunt looks for.
pub(crate) fn read_name_count() -> usize {
    READ.len()
}

/// Whether a dialect reads a metric of this name.
pub(crate) fn is_read_name(name: &str) -> bool {
    READ.contains(name)
}

/// Those of the server's names that a dialect reads, sorted: names of one exporter are adjacent.
pub(crate) fn select_read_names(names: &[String]) -> Vec<&'static str> {
    let mut read: Vec<&'static str> =
        names.iter().filter_map(|name| READ.get(name.as_str()).copied()).collect();
    read.sort_unstable();
    read.dedup();
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_dialect_reads_are_queried() {
        let names = ["up", "node_uname_info", "go_goroutines", "DCGM_FI_DEV_GPU_UTIL", "up"];
        let names = names.map(str::to_owned);
        assert_eq!(select_read_names(&names), ["DCGM_FI_DEV_GPU_UTIL", "node_uname_info"]);
        assert!(read_name_count() > 500);
    }
}
