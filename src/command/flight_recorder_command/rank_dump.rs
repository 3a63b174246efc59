//! One rank's dump of PyTorch's flight recorder: which collective of each process group it called, started and
//! completed last. Versions 2.x, as pickle or JSON.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;

use super::{
    data_arena::{DataArena, DataValue, ValueId},
    pickle_reader::{PickleError, read_pickle},
};

/// The most operations that are read of a dump; the recorder keeps 2,000 unless told otherwise.
const MAX_ENTRIES: usize = 1 << 18;

/// The most process groups of a dump, and ranks of a group.
const MAX_GROUPS: usize = 4_096;
const MAX_RANKS: usize = 1 << 17;

/// How many operations of a group are kept by name, the last ones.
const KEPT_OPERATIONS: usize = 64;

/// The longest path of a stack, from the call of the collective outwards.
const MAX_FRAMES: usize = 64;

/// Why a file is not read as a dump.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    /// The pickle cannot be read.
    #[error("not a readable pickle: {0}")]
    Pickle(#[from] PickleError),
    /// The JSON cannot be read.
    #[error("not readable JSON (line {line}, column {column}); copy it again")]
    Json {
        /// The line of the fault.
        line: usize,
        /// Its column.
        column: usize,
    },
    /// It is data of another kind.
    #[error("not a dump of PyTorch's flight recorder: it has no {0}")]
    Missing(&'static str),
    /// Its version is not known.
    #[error(
        "version {0:?} of the flight recorder; gaunt reads versions 2.x (PyTorch 2.4 and later)"
    )]
    Version(SanitizedText),
    /// It has more than can be read.
    #[error("more than {limit} {what}; dump fewer operations (TORCH_FR_BUFFER_SIZE)")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much is read.
        limit: usize,
    },
}

/// The dump of one rank.
#[derive(Debug)]
pub(super) struct RankDump {
    pub(super) version: SanitizedText,
    pub(super) groups: Vec<GroupDump>,
    /// The operation that it called last, of any group.
    pub(super) last_call: Option<LastCall>,
}

/// A process group (a communicator) as one rank knows it.
#[derive(Debug)]
pub(super) struct GroupDump {
    pub(super) name: SanitizedText,
    pub(super) description: SanitizedText,
    /// Its ranks in the job, sorted; empty where the dump does not state them.
    pub(super) ranks: Vec<u32>,
    /// How far the rank is; none where the dump does not show it.
    pub(super) position: Option<GroupPosition>,
    /// Names of its last collectives, by sequence number.
    pub(super) operations: BTreeMap<u64, SanitizedText>,
}

/// How far a rank is in the collectives of a group: sequence numbers, which begin with 1; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupPosition {
    pub(super) enqueued: u64,
    /// None where the recorder does not see kernels start (TORCH_NCCL_ENABLE_TIMING is off).
    pub(super) started: Option<u64>,
    pub(super) completed: u64,
}

impl GroupPosition {
    /// Whether it called a collective that is not completed.
    pub(super) fn is_waiting(self) -> bool {
        self.enqueued > self.completed
    }
}

/// The operation that a rank called last.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct LastCall {
    pub(super) operation: SanitizedText,
    pub(super) group: SanitizedText,
    /// Its sequence number within the group: of collectives, or of point-to-point operations.
    pub(super) sequence: u64,
    /// scheduled, started or completed.
    pub(super) state: SanitizedText,
    /// The line of the training program that called it: FILE:LINE FUNCTION.
    pub(super) caller: Option<SanitizedText>,
}

/// What the entries of one group show.
#[derive(Default)]
struct GroupEntries {
    enqueued: u64,
    started: u64,
    completed: u64,
    first: Option<u64>,
    operations: BTreeMap<u64, SanitizedText>,
}

impl GroupEntries {
    /// How far the rank is; none where it only sent to or received from single ranks.
    fn find_position(&self) -> Option<GroupPosition> {
        // Those before the first one that is still recorded are completed.
        let before = self.first?.saturating_sub(1);
        let completed = self.completed.max(before);
        let started = (self.started > 0).then(|| self.started.max(completed));
        Some(GroupPosition { enqueued: self.enqueued, started, completed })
    }
}

/// Reads a dump.
pub(super) fn parse_dump(bytes: &[u8]) -> Result<RankDump, DumpError> {
    let (arena, root) = match bytes.first() {
        Some(0x80) => read_pickle(bytes)?,
        Some(b'{') => {
            let json: serde_json::Value = serde_json::from_slice(bytes)
                .map_err(|error| DumpError::Json { line: error.line(), column: error.column() })?;
            let mut arena = DataArena::default();
            let root = arena.add_json(json).map_err(PickleError::from)?;
            (arena, root)
        }
        _ => return Err(DumpError::Missing("version")),
    };
    DumpReader { arena, root }.read_dump()
}

struct DumpReader {
    arena: DataArena,
    root: ValueId,
}

impl DumpReader {
    fn read_dump(&self) -> Result<RankDump, DumpError> {
        let version = self.text_field(self.root, "version").ok_or(DumpError::Missing("version"))?;
        if !version.as_str().starts_with("2.") {
            return Err(DumpError::Version(version));
        }
        let config = self.arena.find_field(self.root, "pg_config");
        let config = config.and_then(|id| self.arena.dict_of(id));
        let config = config.ok_or(DumpError::Missing("pg_config"))?;
        if config.len() > MAX_GROUPS {
            return Err(DumpError::TooMany { what: "process groups", limit: MAX_GROUPS });
        }
        let entries = self.arena.find_field(self.root, "entries");
        let entries = entries.and_then(|id| self.arena.list_of(id)).unwrap_or_default();
        if entries.len() > MAX_ENTRIES {
            return Err(DumpError::TooMany { what: "operations", limit: MAX_ENTRIES });
        }
        let last_call = entries.last().and_then(|entry| self.read_last_call(*entry));
        Ok(RankDump { version, groups: self.read_groups(config, entries)?, last_call })
    }

    fn read_groups(
        &self,
        config: &[(ValueId, ValueId)],
        entries: &[ValueId],
    ) -> Result<Vec<GroupDump>, DumpError> {
        let mut of_groups = self.read_entries(entries);
        // A recorder that still has its first operation has all of them.
        let first_record = entries.first().map(|entry| self.int_field(*entry, "record_id"));
        let has_all = first_record == Some(Some(0));
        let mut groups = Vec::with_capacity(config.len());
        for (key, info) in config {
            let Some(name) = self.arena.text_of(*key).map(SanitizedText::new) else { continue };
            let group = of_groups.remove(&name);
            let position = match &group {
                Some(group) => group.find_position(),
                None if has_all => {
                    Some(GroupPosition { enqueued: 0, started: Some(0), completed: 0 })
                }
                // Without any operation only the group's number says which status is its.
                None if entries.is_empty() => self.read_status(name.as_str()),
                None => None,
            };
            groups.push(GroupDump {
                description: self.text_field(*info, "desc").unwrap_or_default(),
                ranks: self.read_ranks(*info)?,
                position,
                operations: group.map(|group| group.operations).unwrap_or_default(),
                name,
            });
        }
        Ok(groups)
    }

    /// Collects the collectives of each group. Point-to-point operations have numbers of their own on every rank, which
    /// cannot be compared.
    fn read_entries(&self, entries: &[ValueId]) -> BTreeMap<SanitizedText, GroupEntries> {
        let mut groups: BTreeMap<SanitizedText, GroupEntries> = BTreeMap::new();
        for entry in entries {
            let Some(name) = self.group_name(*entry) else { continue };
            if groups.len() >= MAX_GROUPS && !groups.contains_key(&name) {
                continue;
            }
            let group = groups.entry(name).or_default();
            let is_point_to_point = self.bool_field(*entry, "is_p2p") == Some(true);
            let sequence = self.int_field(*entry, "collective_seq_id");
            let Some(sequence) = sequence.and_then(|number| u64::try_from(number).ok()) else {
                continue;
            };
            if is_point_to_point || sequence == 0 {
                continue;
            }
            let started = self.int_field(*entry, "time_discovered_started_ns");
            if started.is_some_and(|time| time > 0) {
                group.started = group.started.max(sequence);
            }
            if self.text_at(*entry, "state") == Some("completed") {
                group.completed = group.completed.max(sequence);
            }
            group.enqueued = group.enqueued.max(sequence);
            group.first = Some(group.first.map_or(sequence, |first| first.min(sequence)));
            if let Some(operation) = self.text_field(*entry, "profiling_name") {
                // The first of several under one number names it.
                group.operations.entry(sequence).or_insert(operation);
                if group.operations.len() > KEPT_OPERATIONS {
                    group.operations.pop_first();
                }
            }
        }
        groups
    }

    /// What the recorder says of a group beside its operations.
    fn read_status(&self, id: &str) -> Option<GroupPosition> {
        let all = self.arena.find_field(self.root, "pg_status")?;
        let is_own = |(key, _): &&(ValueId, ValueId)| self.arena.text_of(*key) == Some(id);
        let (_, status) = self.arena.dict_of(all)?.iter().take(MAX_GROUPS).find(is_own)?;
        // -1 is none.
        let number = |name| Some(u64::try_from(self.int_field(*status, name)?).unwrap_or(0));
        let completed = number("last_completed_collective")?;
        Some(GroupPosition {
            enqueued: number("last_enqueued_collective")?.max(completed),
            started: number("last_started_collective").filter(|started| *started > 0),
            completed,
        })
    }

    /// The ranks of a group: `[0, 1, 2]` as a text, or a list.
    fn read_ranks(&self, info: ValueId) -> Result<Vec<u32>, DumpError> {
        let Some(ranks) = self.arena.find_field(info, "ranks") else { return Ok(Vec::new()) };
        let mut ranks: Vec<u32> = if let Some(list) = self.arena.list_of(ranks) {
            let ranks = list.iter().take(MAX_RANKS + 1);
            ranks.filter_map(|rank| self.arena.int_of(*rank)?.try_into().ok()).collect()
        } else {
            let text = self.arena.text_of(ranks).unwrap_or_default();
            let ranks = text.trim_matches(['[', ']']).split(',').take(MAX_RANKS + 1);
            ranks.filter_map(|rank| rank.trim().parse().ok()).collect()
        };
        if ranks.len() > MAX_RANKS {
            return Err(DumpError::TooMany { what: "ranks of a group", limit: MAX_RANKS });
        }
        ranks.sort_unstable();
        ranks.dedup();
        Ok(ranks)
    }

    fn read_last_call(&self, entry: ValueId) -> Option<LastCall> {
        let is_point_to_point = self.bool_field(entry, "is_p2p") == Some(true);
        let number = if is_point_to_point { "p2p_seq_id" } else { "collective_seq_id" };
        Some(LastCall {
            operation: self.text_field(entry, "profiling_name")?,
            group: self.group_name(entry)?,
            sequence: u64::try_from(self.int_field(entry, number)?).ok()?,
            state: self.text_field(entry, "state")?,
            caller: self.find_caller(entry),
        })
    }

    /// The innermost frame outside of PyTorch.
    fn find_caller(&self, entry: ValueId) -> Option<SanitizedText> {
        let frames = self.arena.list_of(self.arena.find_field(entry, "frames")?)?;
        let frame = frames.iter().take(MAX_FRAMES).find(|frame| {
            let file = self.text_at(**frame, "filename");
            file.is_some_and(|file| !file.contains("/torch/") && !file.starts_with("torch/"))
        })?;
        let file = self.text_at(*frame, "filename")?;
        let line = self.int_field(*frame, "line").map(|line| format!(":{line}"));
        let function = self.text_at(*frame, "name").map(|name| format!(" {name}"));
        let text = format!("{file}{}{}", line.unwrap_or_default(), function.unwrap_or_default());
        Some(SanitizedText::new(&text))
    }

    /// The name of the group of an operation: the first of a pair.
    fn group_name(&self, entry: ValueId) -> Option<SanitizedText> {
        let pair = self.arena.list_of(self.arena.find_field(entry, "process_group")?)?;
        Some(SanitizedText::new(self.arena.text_of(*pair.first()?)?))
    }

    fn text_at(&self, dict: ValueId, name: &str) -> Option<&str> {
        self.arena.text_of(self.arena.find_field(dict, name)?)
    }

    fn text_field(&self, dict: ValueId, name: &str) -> Option<SanitizedText> {
        self.text_at(dict, name).map(SanitizedText::new)
    }

    fn int_field(&self, dict: ValueId, name: &str) -> Option<i64> {
        self.arena.int_of(self.arena.find_field(dict, name)?)
    }

    fn bool_field(&self, dict: ValueId, name: &str) -> Option<bool> {
        match self.arena.value_of(self.arena.find_field(dict, name)?) {
            DataValue::Bool(value) => Some(*value),
            _ => None,
        }
    }
}
