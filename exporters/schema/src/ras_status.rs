//! The status of NCCL's RAS service as JSON, and which ranks of a job the others wait for: those that launched fewer
//! operations of a communicator, or that do not respond.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::SanitizedText;

/// The status of all communicators of a job, as RAS states it.
#[derive(Debug, Deserialize)]
pub struct RasStatus {
    /// The version of NCCL.
    pub nccl_version: String,
    /// The communicators.
    pub communicators: Vec<RasCommunicator>,
}

impl RasStatus {
    /// Returns how many processes are missing because RAS considers them dead, and because it does not reach them.
    pub fn missing_counts(&self) -> [usize; 2] {
        let count = |is_counted: fn(&RasRankStatus) -> bool| {
            let missing = self.communicators.iter().flat_map(|it| &it.missing_ranks);
            let counted = missing.filter(|rank| is_counted(&rank.status));
            counted.map(RasRank::to_process).collect::<BTreeSet<_>>().len()
        };
        [
            count(|status| status.considered_dead),
            count(|status| status.unresponsive && !status.considered_dead),
        ]
    }
}

/// One communicator.
#[derive(Debug, Deserialize)]
pub struct RasCommunicator {
    /// Its hash, as in NCCL's log.
    pub hash: String,
    /// What makes the hash unique.
    #[serde(default)]
    pub secondary_hash: String,
    /// How many ranks it has.
    pub size: u32,
    /// The ranks that answered.
    pub ranks: Vec<RasRank>,
    /// The ranks that did not.
    #[serde(default)]
    pub missing_ranks: Vec<RasRank>,
}

/// One rank of a communicator.
#[derive(Debug, Deserialize)]
pub struct RasRank {
    /// Its number in the communicator.
    pub rank: u32,
    /// The address of its host.
    pub host: String,
    /// Its process.
    pub pid: i64,
    /// Its GPU, as NVML counts.
    pub nvml_dev: i32,
    /// Operations that it launched, by name; a missing rank has none.
    #[serde(default)]
    pub collective_counts: BTreeMap<String, u64>,
    /// Its state.
    #[serde(default)]
    pub status: RasRankStatus,
}

/// The state of a rank: which fields it has depends on whether it answered.
#[derive(Debug, Default, Deserialize)]
pub struct RasRankStatus {
    /// Whether RAS could not reach it.
    #[serde(default)]
    pub unresponsive: bool,
    /// Whether RAS gave it up.
    #[serde(default)]
    pub considered_dead: bool,
}

/// Why the others wait for a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RasLaggingReason {
    /// RAS considers its process dead.
    Dead,
    /// RAS does not reach its process.
    Unresponsive,
    /// It launched fewer operations than the others.
    Behind,
}

/// The process of a rank: its host, process and GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RasProcess {
    /// The address of its host.
    pub host: SanitizedText,
    /// Its process.
    pub pid: i64,
    /// Its GPU, as NVML counts.
    pub nvml_dev: i32,
}

/// A rank for which others wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RasLaggingRank {
    /// Its process.
    #[serde(flatten)]
    pub process: RasProcess,
    /// Its number in the communicator.
    pub rank: u32,
    /// Why they wait.
    pub reason: RasLaggingReason,
    /// The communicator's hash.
    pub communicator: SanitizedText,
    /// The operation in which it is furthest behind, with its own count and the highest one.
    pub operation: Option<(SanitizedText, u64, u64)>,
    /// How many ranks wait.
    pub waiting_ranks: u32,
}

/// What two states of a job show, some seconds apart.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct RasComparison {
    /// The version of NCCL.
    pub nccl_version: SanitizedText,
    /// The communicators that were compared: those of several ranks.
    pub communicators: u32,
    /// Those of which some rank launched an operation in between.
    pub progressing: u32,
    /// The ranks for which others wait.
    pub lagging: Vec<RasLaggingRank>,
}

impl RasComparison {
    /// Compares two states. A communicator of which any rank went on is not stuck; a rank that is level with the others
    /// where they wait for somebody else is behind elsewhere because of that.
    pub fn of(before: &RasStatus, after: &RasStatus) -> Self {
        let counts = |status: &'_ RasStatus| -> BTreeMap<(String, String), u64> {
            let sum = |communicator: &RasCommunicator| {
                let of_rank = |rank: &RasRank| rank.collective_counts.values().sum::<u64>();
                communicator.ranks.iter().map(of_rank).fold(0, u64::wrapping_add)
            };
            let communicators = status.communicators.iter();
            communicators
                .map(|it| ((it.hash.clone(), it.secondary_hash.clone()), sum(it)))
                .collect()
        };
        let (earlier, later) = (counts(before), counts(after));
        // A rank alone waits for nobody, and NCCL counts none of its operations.
        let communicators = || after.communicators.iter().filter(|it| it.has_several_ranks());
        let mut comparison = Self {
            nccl_version: SanitizedText::new(&after.nccl_version),
            communicators: communicators().count() as u32,
            ..Self::default()
        };
        let mut waiting: BTreeSet<RasProcess> = BTreeSet::new();
        for communicator in communicators() {
            let key = (communicator.hash.clone(), communicator.secondary_hash.clone());
            let is_stuck = earlier.get(&key).is_some_and(|before| later.get(&key) == Some(before));
            let (lagging, level) = communicator.compare_ranks();
            if !is_stuck {
                comparison.progressing += 1;
            }
            // A process that does not respond is at fault whether or not others still run.
            let counts = |rank: &RasLaggingRank| is_stuck || rank.reason < RasLaggingReason::Behind;
            let lagging: Vec<_> = lagging.into_iter().filter(counts).collect();
            if !lagging.is_empty() {
                waiting.extend(level);
            }
            comparison.lagging.extend(lagging);
        }
        let is_cause = |rank: &RasLaggingRank| {
            rank.reason < RasLaggingReason::Behind || !waiting.contains(&rank.process)
        };
        if comparison.lagging.iter().any(is_cause) {
            comparison.lagging.retain(is_cause);
        }
        comparison
            .lagging
            .sort_by_key(|rank| (rank.reason, std::cmp::Reverse(rank.waiting_ranks), rank.rank));
        comparison
    }
}

impl RasCommunicator {
    const fn has_several_ranks(&self) -> bool {
        self.size > 1
    }

    /// Returns the ranks that lag, and the processes of those that do not.
    fn compare_ranks(&self) -> (Vec<RasLaggingRank>, Vec<RasProcess>) {
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        for (operation, count) in self.ranks.iter().flat_map(|rank| &rank.collective_counts) {
            let most = highest.entry(operation).or_default();
            *most = (*most).max(*count);
        }
        let furthest = |rank: &RasRank| {
            let gaps = highest.iter().map(|(operation, most)| {
                let own = rank.collective_counts.get(*operation).copied().unwrap_or(0);
                (*operation, own, *most)
            });
            gaps.filter(|(_, own, most)| own < most).max_by_key(|(_, own, most)| most - own)
        };
        let (behind, level): (Vec<&RasRank>, Vec<&RasRank>) =
            self.ranks.iter().partition(|rank| furthest(rank).is_some());
        let lag = |rank: &RasRank, reason, operation: Option<(&str, u64, u64)>| RasLaggingRank {
            process: rank.to_process(),
            rank: rank.rank,
            reason,
            communicator: SanitizedText::new(&self.hash),
            operation: operation.map(|(name, own, most)| (SanitizedText::new(name), own, most)),
            waiting_ranks: level.len() as u32,
        };
        let missing = self.missing_ranks.iter().filter_map(|rank| {
            let reason = match (rank.status.considered_dead, rank.status.unresponsive) {
                (true, _) => RasLaggingReason::Dead,
                (false, true) => RasLaggingReason::Unresponsive,
                // It is reached, and says that it does not belong to the communicator any more.
                (false, false) => return None,
            };
            Some(lag(rank, reason, None))
        });
        let mut lagging: Vec<RasLaggingRank> = missing.collect();
        if lagging.is_empty() {
            lagging.extend(
                behind.iter().map(|rank| lag(rank, RasLaggingReason::Behind, furthest(rank))),
            );
        }
        (lagging, level.iter().map(|rank| rank.to_process()).collect())
    }
}

impl RasLaggingReason {
    /// Returns its name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Unresponsive => "unresponsive",
            Self::Behind => "behind",
        }
    }
}

impl RasRank {
    fn to_process(&self) -> RasProcess {
        let host = SanitizedText::new(&self.host);
        RasProcess { host, pid: self.pid, nvml_dev: self.nvml_dev }
    }
}

/// The most ranks that a text lists.
const LISTED: usize = 16;

impl fmt::Display for RasComparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stuck = self.communicators - self.progressing.min(self.communicators);
        writeln!(
            out,
            "NCCL {}: {}, {stuck} of them launched nothing in between",
            self.nccl_version,
            format_count(self.communicators, "communicator")
        )?;
        for rank in self.lagging.iter().take(LISTED) {
            writeln!(out, "{rank}")?;
        }
        if self.lagging.len() > LISTED {
            writeln!(out, "and {} more; --json lists them", self.lagging.len() - LISTED)?;
        }
        if self.lagging.is_empty() {
            let verdict = match stuck {
                0 if self.communicators == 0 => {
                    "No communicator has several ranks: there is nothing to compare."
                }
                0 => "No rank is behind: the job makes progress.",
                _ => {
                    "No rank is behind: all ranks launched the same operations. The job idles, or its network or NVLinks are at fault."
                }
            };
            writeln!(out, "{verdict}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RasLaggingRank {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RasProcess { host, pid, nvml_dev } = &self.process;
        let Self { rank, communicator, waiting_ranks, .. } = self;
        write!(
            out,
            "GPU {nvml_dev} of {host} (process {pid}), rank {rank} of communicator {communicator}, "
        )?;
        match (self.reason, &self.operation) {
            (RasLaggingReason::Dead, _) => write!(out, "is dead")?,
            (RasLaggingReason::Unresponsive, _) => write!(out, "does not respond")?,
            (RasLaggingReason::Behind, Some((operation, own, most))) => {
                write!(out, "launched {own} of {most} {operation}")?;
            }
            (RasLaggingReason::Behind, None) => write!(out, "is behind")?,
        }
        let verb = if *waiting_ranks == 1 { "waits" } else { "wait" };
        write!(out, "; {} {verb} for it", format_count(*waiting_ranks, "rank"))
    }
}

fn format_count(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A communicator of so many ranks, eight a host, with their AllReduce counts; none is a rank that does not respond.
    fn communicator(hash: &str, first: u32, counts: &[Option<u64>]) -> Value {
        let rank = |number: u32, global: u32| {
            json!({
                "rank": number, "host": format!("10.0.0.{}", global / 8 + 1), "pid": 1_000 + global,
                "cuda_dev": 0, "nvml_dev": global % 8,
            })
        };
        let (mut ranks, mut missing) = (Vec::new(), Vec::new());
        for (number, count) in (0..).zip(counts) {
            let mut rank = rank(number, first + number);
            if let Some(count) = count {
                rank["status"] = json!({"init_state": 0, "async_error": 0, "abort_flag": false});
                rank["collective_counts"] = json!({"Broadcast": 3, "AllReduce": count});
                ranks.push(rank);
            } else {
                rank["status"] = json!({"unresponsive": true, "considered_dead": false});
                missing.push(rank);
            }
        }
        json!({
            "hash": hash, "secondary_hash": "0x1:0x2", "size": counts.len(), "ranks_count": ranks.len(),
            "missing_ranks_count": missing.len(), "ranks": ranks, "missing_ranks": missing,
        })
    }

    fn status(communicators: &[Value]) -> RasStatus {
        let status = json!({
            "nccl_version": "2.29.1", "cuda_runtime_version": 13_000, "timestamp": "2025-12-19 13:06:53",
            "communicators_count": communicators.len(), "communicators": communicators,
            "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
        });
        serde_json::from_value(status).unwrap()
    }

    /// What NCCL 2.28.9 answers for a job of one rank.
    const ANSWER_OF_NCCL: &str = r#"{
  "nccl_version": "2.28.9",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-11-28 06:53:51",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0x2be8ad3bd247ffad",
      "secondary_hash": "0x801ac426c1d13fe6:0xb798d34fe2510a47",
      "size": 1,
      "ranks_count": 1,
      "missing_ranks_count": 0,
      "ranks": [
        {
          "rank": 0,
          "host": "192.0.2.2",
          "pid": 1047,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 0,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 0
          }
        }
      ],
      "missing_ranks": [

      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }
}"#;

    /// It counts no operation of a communicator of one rank, however many were called: the job was not stuck.
    #[test]
    fn answer_of_nccl_is_read() {
        let status: RasStatus = serde_json::from_str(ANSWER_OF_NCCL).unwrap();
        assert_eq!(status.missing_counts(), [0, 0]);
        let comparison = RasComparison::of(&status, &status);
        assert_eq!(
            comparison.to_string(),
            "NCCL 2.28.9: 0 communicators, 0 of them launched nothing in between\n\
             No communicator has several ranks: there is nothing to compare.\n"
        );
    }

    fn lagging(before: &[Value], after: &[Value]) -> Vec<String> {
        let comparison = RasComparison::of(&status(before), &status(after));
        comparison.lagging.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rank_with_the_smallest_count_is_named_with_its_gpu() {
        let counts = [Some(42), Some(42), Some(41), Some(42)];
        let stuck = [communicator("0xab", 8, &counts)];
        let expected = "GPU 2 of 10.0.0.2 (process 1010), rank 2 of communicator 0xab, launched 41 of 42 AllReduce; 3 ranks wait for it";
        assert_eq!(lagging(&stuck, &stuck), [expected]);
        // Counts that move are no hang: queries are slower than operations.
        let moved = [communicator("0xab", 8, &counts.map(|count| count.map(|it| it + 5)))];
        assert_eq!(lagging(&stuck, &moved), [""; 0]);
        // Another communicator of the same hash is another one.
        assert_eq!(lagging(&[communicator("0xcd", 8, &counts)], &stuck), [""; 0]);
    }

    #[test]
    fn rank_that_waits_in_another_communicator_is_not_named() {
        // Rank 1 waits for rank 2 in the second communicator, and is behind in the first one.
        let stuck = [
            communicator("0xa", 0, &[Some(9), Some(8)]),
            communicator("0xb", 1, &[Some(5), Some(4)]),
        ];
        let named = lagging(&stuck, &stuck);
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(
            named[0].starts_with("GPU 2 of 10.0.0.1 (process 1002), rank 1 of communicator 0xb")
        );
    }

    #[test]
    fn process_that_does_not_respond_comes_before_counts() {
        let stuck = [communicator("0xa", 0, &[Some(9), None, Some(8)])];
        let expected = "GPU 1 of 10.0.0.1 (process 1001), rank 1 of communicator 0xa, does not respond; 1 rank waits for it";
        assert_eq!(lagging(&stuck, &stuck), [expected]);
    }

    #[test]
    fn text_says_whether_anything_moved() {
        let idle = status(&[communicator("0xa", 0, &[Some(9), Some(9)])]);
        let text = RasComparison::of(&idle, &idle).to_string();
        assert!(
            text.starts_with("NCCL 2.29.1: 1 communicator, 1 of them launched nothing"),
            "{text}"
        );
        assert!(
            text.contains("No rank is behind: all ranks launched the same operations."),
            "{text}"
        );
        let moved = status(&[communicator("0xa", 0, &[Some(10), Some(9)])]);
        let text = RasComparison::of(&idle, &moved).to_string();
        assert!(text.contains("No rank is behind: the job makes progress."), "{text}");
    }
}
