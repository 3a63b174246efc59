//! Exit codes of a probe, their meanings, and the reasons for measuring nothing.

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

use crate::cuda::CudaError;

/// How a probe ended; each kind has its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    /// Measured, data correct.
    Measured,
    /// A failure without its own code.
    Failed,
    /// The GPUs are not idle: not started.
    Refused,
    /// The received data differs from the sent data.
    WrongData,
    /// Slower than the limit, or than the baseline of these GPUs.
    Slow,
    /// The deadline passed: the worker was killed.
    Hung,
    /// A GPU, or our context on it, was lost.
    Lost,
    /// Not enough memory.
    OutOfMemory,
    /// Another process appeared on the GPUs, and the measurement was stopped.
    Stopped,
    /// No driver, or no GPU.
    NoGpu,
    /// GPUs have no peer access, and it is required.
    NoPeerAccess,
    /// The request exceeds the limits.
    OverLimit,
    /// Within the cool-down, or today's GPU time is used up.
    Resting,
}

impl ExitKind {
    /// All kinds with exit code and meaning. As with every program of gaunt an invalid command line ends with 3:
    /// nothing was started.
    pub const ALL: [(Self, u8, &str); 13] = [
        (Self::Measured, 0, "measured, data correct"),
        (Self::Failed, 1, "failed; the message names the reason"),
        (Self::Refused, 3, "not started: GPUs in use or their use unknown, or wrong command line"),
        (Self::WrongData, 4, "received data is wrong"),
        (Self::Slow, 5, "slower than --floor, or than the baseline"),
        (Self::Hung, 6, "deadline passed, worker killed"),
        (Self::Lost, 7, "a GPU was lost"),
        (Self::OutOfMemory, 8, "out of memory"),
        (Self::Stopped, 9, "stopped: another process started on the GPUs"),
        (Self::NoGpu, 10, "no driver, or no GPU"),
        (Self::NoPeerAccess, 11, "no peer access, with --require-peer"),
        (Self::OverLimit, 12, "the request exceeds the limits"),
        (Self::Resting, 13, "not started: cool-down, or today's GPU time is used up"),
    ];

    /// The exit code.
    pub fn exit_code(self) -> u8 {
        Self::ALL.iter().find(|(kind, _, _)| *kind == self).map_or(1, |(_, code, _)| *code)
    }

    /// Whether the GPUs or their links have a fault: everything else says that nothing was measured, or nothing bad.
    pub fn is_fault(self) -> bool {
        matches!(self, Self::WrongData | Self::Slow | Self::Hung | Self::Lost)
    }

    /// The meaning of the exit code.
    pub fn code_meaning(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _, _)| *kind == self).map_or("", |(_, _, meaning)| meaning)
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
    /// A job is running or starting on the node.
    Job,
    /// A GPU is in a mode that a probe cannot use: MIG, or exclusive compute mode.
    Mode,
    /// It cannot be determined which processes are on the GPUs.
    Blind,
    /// The cool-down after the last probe.
    CoolDown,
    /// Today's GPU time is used up.
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
    /// The kind.
    pub kind: ExitKind,
    /// Why nothing was measured, if nothing was.
    pub reason: Option<SkipReason>,
    /// One sentence for people.
    pub message: SanitizedText,
}

impl ProbeExit {
    /// Measured, data correct.
    pub fn new_measured() -> Self {
        Self::new(ExitKind::Measured, ExitKind::Measured.code_meaning())
    }

    /// Slower than expected.
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

    /// The exit for a driver error; `gpu` is the GPU that it concerns.
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
    fn exit_codes_are_unique() {
        let codes: BTreeSet<u8> = ExitKind::ALL.iter().map(|(_, code, _)| *code).collect();
        assert_eq!(codes.len(), ExitKind::ALL.len());
        assert!(!codes.contains(&2), "2 is the code of snapshot --check");
        assert_eq!(ExitKind::Lost.exit_code(), 7);
        let faults = ExitKind::ALL.iter().filter(|(kind, _, _)| kind.is_fault());
        assert!(faults.map(|(_, code, _)| *code).eq(4..=7), "as the help of --faults-only says");
    }

    #[test]
    fn skip_reasons_are_in_the_catalogue() {
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
            let reasons = gaunt_schema::catalogue::probe_results::SKIPPED;
            assert!(reasons.iter().any(|(label, _)| *label == reason.as_str()), "{reason:?}");
        }
    }
}
