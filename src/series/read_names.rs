//! Names to query: those of the server that a dialect reads.

use std::{collections::HashMap, sync::LazyLock};

use foldhash::fast::RandomState;
use gaunt_schema::dialect::{self, ReadName};

/// The names that a dialect reads.
static READ: LazyLock<HashMap<&'static str, ReadName, RandomState>> =
    LazyLock::new(|| dialect::read_names().into_iter().map(|read| (read.name, read)).collect());

/// How many names gaunt looks for.
pub(crate) fn read_name_count() -> usize {
    READ.len()
}

/// Whether a dialect reads a metric of this name.
pub(crate) fn is_read_name(name: &str) -> bool {
    READ.contains_key(name)
}

/// The names to query, each list sorted: names of one exporter are adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueriedNames {
    /// Those whose values change often.
    pub(crate) usual: Vec<&'static str>,
    /// Those whose values change rarely.
    pub(crate) rare: Vec<&'static str>,
}

impl QueriedNames {
    /// Those of the server's names that a dialect reads.
    pub(crate) fn of_server(names: &[String]) -> Self {
        let mut read: Vec<ReadName> =
            names.iter().filter_map(|name| READ.get(name.as_str()).copied()).collect();
        read.sort_unstable();
        read.dedup();
        let select = |rarely| {
            let of_kind = read.iter().filter(move |read| read.changes_rarely == rarely);
            of_kind.map(|read| read.name).collect()
        };
        Self { usual: select(false), rare: select(true) }
    }

    /// Whether there is nothing to query.
    pub(crate) fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.rare.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_dialect_reads_are_queried() {
        let names = ["up", "node_uname_info", "go_goroutines", "DCGM_FI_DEV_GPU_UTIL", "up"];
        let rare = ["node_memory_MemTotal_bytes", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"];
        let names: Vec<String> = names.into_iter().chain(rare).map(str::to_owned).collect();
        let queried = QueriedNames::of_server(&names);
        assert_eq!(queried.usual, ["DCGM_FI_DEV_GPU_UTIL", "node_uname_info"]);
        assert_eq!(queried.rare, ["DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "node_memory_MemTotal_bytes"]);
        assert!(read_name_count() > 500);
    }
}
