//! XIDs, the error codes of the NVIDIA driver: one table of severity, meaning and action.

use crate::Severity;

/// One XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidEntry {
    /// The code in the kernel log.
    pub code: u32,
    /// Its severity.
    pub severity: Severity,
    /// What happened, in a few words.
    pub meaning: &'static str,
    /// The recommended action.
    pub action: &'static str,
}

const fn table_row(
    code: u32,
    severity: Severity,
    meaning: &'static str,
    action: &'static str,
) -> XidEntry {
    XidEntry { code, severity, meaning, action }
}

const LOOK_AT_JOB: &str = "look at the job: usually an application error";
const RESET: &str = "drain the node and reset the GPU";
const REBOOT: &str = "drain the node and reboot it";
const INSPECT: &str = "drain the node and have the GPU inspected";
const WATCH: &str = "no action; investigate if it repeats";

/// Every XID that has its own row, in order.
pub const XIDS: &[XidEntry] = &[
    table_row(8, Severity::Warning, "GPU stopped processing", LOOK_AT_JOB),
    table_row(13, Severity::Warning, "graphics engine exception", LOOK_AT_JOB),
    table_row(31, Severity::Warning, "memory page fault", LOOK_AT_JOB),
    table_row(32, Severity::Warning, "invalid or corrupted push buffer", LOOK_AT_JOB),
    table_row(38, Severity::Warning, "driver firmware error", RESET),
    table_row(43, Severity::Warning, "GPU stopped processing for one program", LOOK_AT_JOB),
    table_row(45, Severity::Info, "preemptive cleanup after an earlier error", WATCH),
    table_row(48, Severity::Critical, "double-bit ECC error", RESET),
    table_row(61, Severity::Critical, "internal micro-controller breakpoint", RESET),
    table_row(62, Severity::Critical, "internal micro-controller halt", RESET),
    table_row(
        63,
        Severity::Warning,
        "row remapping or page retirement recorded",
        "reset the GPU when it is idle",
    ),
    table_row(64, Severity::Critical, "row remapping or page retirement failed", RESET),
    table_row(68, Severity::Warning, "video processor exception", LOOK_AT_JOB),
    table_row(69, Severity::Warning, "graphics engine class error", LOOK_AT_JOB),
    table_row(
        74,
        Severity::Critical,
        "NVLink error",
        "reset the GPUs of the link; inspect the link if it repeats",
    ),
    table_row(79, Severity::Critical, "GPU has fallen off the bus", REBOOT),
    table_row(92, Severity::Warning, "many single-bit ECC errors", WATCH),
    table_row(
        94,
        Severity::Warning,
        "contained memory error",
        "restart the job; reset the GPU when it is idle",
    ),
    table_row(95, Severity::Critical, "uncontained memory error", RESET),
    table_row(109, Severity::Critical, "context switch timed out", RESET),
    table_row(110, Severity::Critical, "security fault", REBOOT),
    table_row(119, Severity::Critical, "GPU system processor timed out", RESET),
    table_row(120, Severity::Critical, "GPU system processor error", RESET),
    table_row(
        121,
        Severity::Warning,
        "chip-to-chip link corrected errors",
        "reset the GPU when it is idle",
    ),
    table_row(123, Severity::Critical, "power management unit failed", RESET),
    table_row(137, Severity::Warning, "NVLink privilege error", LOOK_AT_JOB),
    table_row(140, Severity::Critical, "unrecovered ECC error", RESET),
    table_row(143, Severity::Critical, "GPU initialisation failed", REBOOT),
    table_row(144, Severity::Critical, "NVLink: encryption or transport error", RESET),
    table_row(145, Severity::Critical, "NVLink: request to another GPU failed", RESET),
    table_row(146, Severity::Warning, "NVLink: transaction layer error", WATCH),
    table_row(147, Severity::Warning, "NVLink: router error", WATCH),
    table_row(148, Severity::Warning, "NVLink: link controller error", WATCH),
    table_row(149, Severity::Critical, "NVLink: link went down or is faulty", RESET),
    table_row(150, Severity::Critical, "NVLink: link firmware error", RESET),
    table_row(151, Severity::Critical, "key rotation failed", REBOOT),
    table_row(
        154,
        Severity::Warning,
        "recovery action changed",
        "follow gaunt_gpu_recovery_action",
    ),
    table_row(155, Severity::Warning, "NVLink: expected software error", WATCH),
    table_row(
        156,
        Severity::Warning,
        "resource retirement recorded",
        "reset the GPU when it is idle",
    ),
    table_row(157, Severity::Critical, "resource retirement failed", INSPECT),
    table_row(158, Severity::Critical, "GPU fatal timeout", REBOOT),
];

/// The XID of an uncorrectable memory error that ended one program and left the GPU working.
const CONTAINED_MEMORY_ERROR: u32 = 94;

/// Whether the XID says that a memory error was uncorrectable and that the GPU works on.
pub fn is_contained_memory_error(code: u32) -> bool {
    code == CONTAINED_MEMORY_ERROR
}

/// Whether the XID ended a program, most likely by an error of its own, and left the GPU working.
pub fn is_program_error(code: u32) -> bool {
    describe_xid(code).action == LOOK_AT_JOB
}

/// XIDs of a GPU whose own NVLink failed.
const NVLINK_CAUSES: [u32; 2] = [149, 150];

/// XIDs of a GPU whose requests to another GPU failed.
const NVLINK_CONSEQUENCES: [u32; 5] = [144, 145, 146, 147, 148];

/// The XID of a GPU that found an error on one of its NVLinks, whichever end is to blame.
const NVLINK_ERROR: u32 = 74;

/// Whether the XID says that an NVLink of the GPU has errors, whichever end is to blame.
pub fn is_nvlink_error(code: u32) -> bool {
    code == NVLINK_ERROR
}

/// Whether the XID says that an NVLink of the GPU itself failed.
pub fn is_nvlink_cause(code: u32) -> bool {
    NVLINK_CAUSES.contains(&code)
}

/// Whether the XID may follow from a failed NVLink of another GPU of the same NVLink domain.
pub fn is_nvlink_consequence(code: u32) -> bool {
    NVLINK_CONSEQUENCES.contains(&code)
}

/// The entry of an XID; one without a row is a warning to watch.
pub fn describe_xid(code: u32) -> XidEntry {
    let found = XIDS.binary_search_by_key(&code, |row| row.code);
    let unknown =
        table_row(code, Severity::Warning, "not in gaunt's table", "see NVIDIA's list of XIDs");
    found.map_or(unknown, |index| XIDS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xid_table_is_sorted_and_unknown_code_is_watched() {
        assert!(XIDS.is_sorted_by(|left, right| left.code < right.code));
        assert_eq!(
            (describe_xid(79).severity, describe_xid(79).action),
            (Severity::Critical, REBOOT)
        );
        assert_eq!(
            (describe_xid(31).severity, describe_xid(31).meaning),
            (Severity::Warning, "memory page fault")
        );
        assert_eq!(
            (describe_xid(9999).code, describe_xid(9999).severity),
            (9999, Severity::Warning)
        );
    }
}
