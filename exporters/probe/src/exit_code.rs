//! Exit codes of a probe, their meanings, and the reasons for measuring nothing.

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

use crate::cuda::CudaError;

/// Every way to end, each with an exit code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    /// Measured, and nothing wrong.
    Measured,
    /// Something failed that has no code of its own.
    Failed,
    /// The GPUs are not free: not started.
    Refused,
    /// The received data differs from the sent data.
    WrongData,
    /// Slower than the limit, or than the baseline of these GPUs.
    Slow,
    /// Not done before the deadline, and killed.
    Hung,
    /// A GPU, or our context on it, was lost.
    Lost,
    /// Memory is not there.
    OutOfMemory,
    /// Another process appeared on the GPUs, and the measurement was stopped.
    Stopped,
    /// No driver, or no GPU.
    NoGpu,
    /// GPUs cannot reach each other's memory, and that was asked for.
    NoPeerAccess,
    /// It would take more than the limits allow.
    OverLimit,
    /// Too soon after the last one, or today's budget is used up.
    Resting,
}

impl ExitKind {
    /// Every one with its exit code and what that says. As with every program of gaunt a wrong command line ends with
    /// 3: nothing was started.
    pub const ALL: [(Self, u8, &str); 13] = [
        (Self::Measured, 0, "measured, and the data is right"),
        (Self::Failed, 1, "failed for another reason, which is said"),
        (
            Self::Refused,
            3,
            "not started: the GPUs are in use or cannot be watched, or the command line is wrong",
        ),
        (Self::WrongData, 4, "the data that arrived is wrong"),
        (Self::Slow, 5, "slower than --floor, or than usual"),
        (Self::Hung, 6, "not done in time, and killed"),
        (Self::Lost, 7, "a GPU was lost"),
        (Self::OutOfMemory, 8, "out of memory"),
        (Self::Stopped, 9, "stopped: a process appeared on the GPUs"),
        (Self::NoGpu, 10, "no driver, or no GPU"),
        (Self::NoPeerAccess, 11, "no peer access, with --require-peer"),
        (Self::OverLimit, 12, "it would need more than the limits allow"),
        (Self::Resting, 13, "not started: cool-down, or today's budget is used up"),
    ];

    /// The exit code.
    pub fn exit_code(self) -> u8 {
        Self::ALL.iter().find(|(kind, _, _)| *kind == self).map_or(1, |(_, code, _)| *code)
    }

    /// What the exit code says.
    pub fn code_meaning(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _, _)| *kind == self).map_or("", |(_, _, says)| says)
    }
}

/// Why the GPUs were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Another process is on a GPU.
    Process,
    /// A GPU is busy, or its memory is.
    InUse,
    /// A job is on the node, or starting.
    Job,
    /// A GPU is in a mode in which we would be in the way: MIG, or exclusive to one process.
    Mode,
    /// It cannot be determined which processes are on the GPUs.
    Blind,
    /// The last probe was too short a time ago.
    CoolDown,
    /// Today's budget is used up.
    Budget,
    /// There is no GPU, or no driver.
    NoGpu,
    /// The probe failed.
    Failed,
}

impl SkipReason {
    /// Its value as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::InUse => "in_use",
            Self::Job => "job",
            Self::Mode => "mode",
            Self::Blind => "blind",
            Self::CoolDown => "cool_down",
            Self::Budget => "budget",
            Self::NoGpu => "no_gpu",
            Self::Failed => "failed",
        }
    }
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ProbeExit {
    /// Which way.
    pub kind: ExitKind,
    /// Why nothing was measured, if that is so.
    pub reason: Option<SkipReason>,
    /// One sentence for people.
    pub message: SanitizedText,
}

impl ProbeExit {
    /// Nothing is wrong.
    pub fn new_measured() -> Self {
        Self::new(ExitKind::Measured, ExitKind::Measured.code_meaning())
    }

    /// Slower than it should be.
    pub fn new_slow(why: &str) -> Self {
        Self::new(ExitKind::Slow, why)
    }

    pub(crate) fn new(kind: ExitKind, message: impl AsRef<str>) -> Self {
        let reason = match kind {
            ExitKind::Measured | ExitKind::WrongData | ExitKind::Slow => None,
            ExitKind::NoGpu => Some(SkipReason::NoGpu),
            _ => Some(SkipReason::Failed),
        };
        Self { kind, reason, message: SanitizedText::new(message.as_ref()) }
    }

    pub(crate) fn new_refused(reason: SkipReason, message: impl AsRef<str>) -> Self {
        let message = SanitizedText::new(message.as_ref());
        Self { kind: ExitKind::Refused, reason: Some(reason), message }
    }

    /// What the driver's answer means for the whole; `gpu` is whose.
    pub(crate) fn of(error: &CudaError, gpu: Option<u32>) -> Self {
        let kind = match error {
            error if error.is_out_of_memory() => ExitKind::OutOfMemory,
            error if error.is_absence() => ExitKind::NoGpu,
            error if error.is_lost() => ExitKind::Lost,
            _ => ExitKind::Failed,
        };
        match gpu {
            Some(gpu) => Self::new(kind, format!("GPU {gpu}: {error}")),
            None => Self::new(kind, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_ending_has_a_code_of_its_own() {
        let codes: BTreeSet<u8> = ExitKind::ALL.iter().map(|(_, code, _)| *code).collect();
        assert_eq!(codes.len(), ExitKind::ALL.len());
        assert!(!codes.contains(&2), "2 is that of snapshot --check");
        assert_eq!(ExitKind::Lost.exit_code(), 7);
    }

    #[test]
    fn reasons_are_those_of_the_catalogue() {
        for reason in [
            SkipReason::Process,
            SkipReason::InUse,
            SkipReason::Job,
            SkipReason::Mode,
            SkipReason::Blind,
            SkipReason::CoolDown,
            SkipReason::Budget,
            SkipReason::NoGpu,
            SkipReason::Failed,
        ] {
            let known = gaunt_schema::catalogue::probe_results::SKIPPED;
            assert!(known.iter().any(|(label, _)| *label == reason.as_str()), "{reason:?}");
        }
    }
}
