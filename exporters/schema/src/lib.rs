//! The ground floor: the vocabulary and the wire that every gaunt program speaks.
//!
//! Nothing here reads a file, opens a socket or asks for the time. A value travels as a [`Reading`] inside a
//! [`Report`]; the [`catalogue`] says what each one means; [`text`] carries it to everybody, [`frame`] between
//! programs of this house.

pub mod batch;
pub mod catalogue;
pub mod device;
pub mod dialect;
pub mod frame;
pub mod job;
pub mod keeping;
pub mod meeting;
pub mod natural;
pub mod plain_error;
pub mod preamble;
pub mod reading;
pub mod report;
pub mod safe;
pub mod shared;
pub mod text;
pub mod time;
pub mod topology;
pub mod unit;
pub mod verdict;
pub mod xid;

pub use batch::{
    Batch, Budget, Delivery, Excess, Failure, Page, Rejected, Target, TargetId, TargetSource,
};
pub use catalogue::{Metric, MetricId};
pub use device::{Class, Device};
pub use dialect::Dialect;
pub use job::{Holding, Job, JobList};
pub use keeping::{Keeping, Obstacle, Stopped};
pub use natural::{NaturalName, natural};
pub use preamble::{PREAMBLE_VERSION, Preamble};
pub use reading::{Absent, Reading};
pub use report::{Extra, Info, Report, Sample};
pub use safe::Safe;
pub use shared::Shared;
pub use time::{Clock, UnixMs};
pub use topology::{DeviceRail, NodePlace, Origin, PortPlace, Switch, Topology};
pub use verdict::{Entity, EntityKind, FindingKind, GpuState, LifeState, Severity, Turn};
