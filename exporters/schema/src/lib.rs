//! The base crate: the data types and wire formats that all gaunt programs share.
//!
//! Nothing here reads a file, opens a socket or reads a clock. A value travels as a [`Reading`] inside a
//! [`Report`]; the [`catalogue`] defines each metric; [`text`] is the public wire format, [`frame`] the one between
//! gaunt programs.

pub mod batch;
#[cfg(test)]
mod build_commit;
pub mod catalogue;
pub mod certificate;
pub mod cow_list;
pub mod device;
pub mod dialect;
pub mod disk;
pub mod finding;
pub mod finding_explanation;
pub mod finding_kind;
pub mod frame;
pub mod glob_pattern;
pub mod job;
pub mod natural;
pub mod plain_error;
pub mod preamble;
pub mod probe_pairing;
pub mod ras_connection;
pub mod ras_status;
pub mod reading;
pub mod recording_status;
pub mod report;
pub mod sanitized_text;
pub mod text;
pub mod time;
pub mod topology;
pub mod unit;
pub mod xid;

pub use batch::{
    Batch, Delivery, FieldCounts, LimitExceeded, MAX_FIELD_NAMES, Quota, RejectionCounts,
    ScrapeFailure, ScrapeTarget, ScrapedPage, SiteFileStatus, SourceLoad, TargetId, TargetSource,
};
pub use catalogue::{Metric, MetricId};
pub use certificate::CertificateLine;
pub use cow_list::CowList;
pub use device::{Device, DeviceClass};
pub use dialect::Dialect;
pub use finding::{
    Acknowledgement, EvidenceItem, EvidenceRole, Finding, FindingLifecycle, HistoryRelation,
    LifecycleChange, LimitSide, LossShare,
};
pub use finding_explanation::{
    AlternativeDetail, AlternativeOutcome, EvidenceContext, SignalDetail,
};
pub use finding_kind::{
    Entity, EntityKind, FindingEvent, FindingKind, GpuState, LifeState, Severity,
};
pub use glob_pattern::GlobPattern;
pub use job::{JobAllocation, JobList, SchedulerJob};
pub use natural::{NaturalName, natural_order};
pub use preamble::{PREAMBLE_VERSION, RecordingPreamble};
pub use reading::{AbsenceReason, Reading};
pub use recording_status::{RecordingStatus, RecordingStop, RecordingStopReason};
pub use report::{ExtraSample, InfoSeries, MetricSample, Report};
pub use sanitized_text::SanitizedText;
pub use time::{ClockFn, UnixMs};
pub use topology::{
    DeviceRail, FabricCable, FabricSwitch, NodeLocation, PortLocation, SourceTopology,
    TopologyOrigin, parse_guid,
};

/// The version of all programs; that of a release has its commit, as in `0.1.0 (0123456789ab)`.
pub const VERSION: &str = env!("GAUNT_VERSION");
