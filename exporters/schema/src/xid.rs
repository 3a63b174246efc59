//! What the driver's error codes mean: one table from XID to how bad it is and what to do.

use crate::Severity;

/// One XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The number in the kernel log.
    pub code: u32,
    /// How bad it is.
    pub severity: Severity,
    /// What happened, in a few words.
    pub meaning: &'static str,
    /// What a person does about it.
    pub action: &'static str,
}

const fn row(code: u32, severity: Severity, meaning: &'static str, action: &'static str) -> Xid {
    Xid { code, severity, meaning, action }
}

const LOOK_AT_JOB: &str = "look at the job: its program is the usual cause";
const RESET: &str = "drain the node and reset the GPU";
const REBOOT: &str = "drain the node and reboot it";
const EXCHANGE: &str = "drain the node and have the board inspected";
const WATCH: &str = "nothing now; look again if it repeats";

/// Every XID that has a row of its own, in order.
pub const XIDS: &[Xid] = &[
    row(8, Severity::Warning, "GPU stopped processing", LOOK_AT_JOB),
    row(13, Severity::Warning, "graphics engine exception", LOOK_AT_JOB),
    row(31, Severity::Warning, "memory page fault", LOOK_AT_JOB),
    row(32, Severity::Warning, "invalid or corrupted push buffer", LOOK_AT_JOB),
    row(38, Severity::Warning, "driver firmware error", RESET),
    row(43, Severity::Warning, "GPU stopped processing for one program", LOOK_AT_JOB),
    row(45, Severity::Info, "preemptive cleanup after an earlier error", WATCH),
    row(48, Severity::Critical, "double-bit ECC error", RESET),
    row(61, Severity::Critical, "internal micro-controller breakpoint", RESET),
    row(62, Severity::Critical, "internal micro-controller halt", RESET),
    row(
        63,
        Severity::Warning,
        "row remapping or page retirement recorded",
        "reset the GPU when it is idle",
    ),
    row(64, Severity::Critical, "row remapping or page retirement failed", RESET),
    row(68, Severity::Warning, "video processor exception", LOOK_AT_JOB),
    row(69, Severity::Warning, "graphics engine class error", LOOK_AT_JOB),
    row(
        74,
        Severity::Critical,
        "NVLink error",
        "reset the GPUs of the link; inspect the link if it repeats",
    ),
    row(79, Severity::Critical, "GPU has fallen off the bus", REBOOT),
    row(92, Severity::Warning, "many single-bit ECC errors", WATCH),
    row(
        94,
        Severity::Warning,
        "contained memory error",
        "restart the job; reset the GPU when it is idle",
    ),
    row(95, Severity::Critical, "uncontained memory error", RESET),
    row(109, Severity::Critical, "context switch timed out", RESET),
    row(110, Severity::Critical, "security fault", REBOOT),
    row(119, Severity::Critical, "GPU system processor timed out", RESET),
    row(120, Severity::Critical, "GPU system processor error", RESET),
    row(
        121,
        Severity::Warning,
        "chip-to-chip link corrected errors",
        "reset the GPU when it is idle",
    ),
    row(123, Severity::Critical, "power management unit failed", RESET),
    row(137, Severity::Warning, "NVLink privilege error", LOOK_AT_JOB),
    row(140, Severity::Critical, "unrecovered ECC error", RESET),
    row(143, Severity::Critical, "GPU initialisation failed", REBOOT),
    row(144, Severity::Critical, "NVLink: encryption or transport error", RESET),
    row(145, Severity::Critical, "NVLink: link layer error", RESET),
    row(149, Severity::Critical, "NVLink: fabric error", RESET),
    row(151, Severity::Critical, "key rotation failed", REBOOT),
    row(
        154,
        Severity::Warning,
        "recovery action changed",
        "do what gaunt_gpu_recovery_action says",
    ),
    row(155, Severity::Warning, "NVLink: expected software error", WATCH),
    row(156, Severity::Warning, "resource retirement recorded", "reset the GPU when it is idle"),
    row(157, Severity::Critical, "resource retirement failed", EXCHANGE),
    row(158, Severity::Critical, "GPU fatal timeout", REBOOT),
];

/// What is known of an XID; one without a row is to be watched.
pub fn xid(code: u32) -> Xid {
    let known = XIDS.binary_search_by_key(&code, |row| row.code);
    let unknown = row(code, Severity::Warning, "not in gaunt's table", "see NVIDIA's list of XIDs");
    known.map_or(unknown, |at| XIDS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_a_strange_code_is_watched() {
        assert!(XIDS.is_sorted_by(|one, two| one.code < two.code));
        assert_eq!((xid(79).severity, xid(79).action), (Severity::Critical, REBOOT));
        assert_eq!((xid(31).severity, xid(31).meaning), (Severity::Warning, "memory page fault"));
        assert_eq!((xid(9999).code, xid(9999).severity), (9999, Severity::Warning));
    }
}
