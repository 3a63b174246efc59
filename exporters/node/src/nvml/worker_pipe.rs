//! The pipe protocol of the worker: length-prefixed JSON messages to its parent.

use std::io::{self, Read, Write};

use gaunt_schema::{DeviceClass, MetricId, Reading, SanitizedText, UnixMs, plain_error};
use serde::{Deserialize, Serialize};

use super::driver_call::OngoingCall;

/// The longest message in bytes. A tick of 16 GPUs with 18 links and 100 processes each takes
/// about 300 KiB.
const MAX_MESSAGE: usize = 1 << 20;

/// The version of the messages. Parent and worker are one executable, so another version is a broken installation.
pub(super) const VERSION: u32 = 3;

/// One message of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerMessage {
    /// The driver is initialised; the first message.
    Hello {
        /// The version of these messages.
        version: u32,
        /// The worker's process id.
        pid: u32,
        /// The driver's version.
        driver: SanitizedText,
    },
    /// The GPUs that the driver lists, by NVML index.
    Inventory {
        /// Each of them.
        gpus: Vec<GpuIdentity>,
    },
    /// One round over all GPUs.
    Tick {
        /// When the round began.
        at: UnixMs,
        /// Seconds from the worker's start to the beginning of the round, by a clock that never steps.
        seconds: f64,
        /// The readings of each GPU, in inventory order.
        gpus: Vec<GpuRoundReadings>,
        /// Failures other than missing support, each call and reason once.
        failures: Vec<SanitizedText>,
    },
    /// XIDs since the last message.
    Xids {
        /// The count of each.
        counts: Vec<XidCount>,
    },
    /// A driver call that has been under way for a while.
    Calling(OngoingCall),
    /// The worker cannot go on and ends.
    Trouble {
        /// Whether that is no failure, because there is no GPU here.
        nothing_here: bool,
        /// What is wrong and what to do.
        message: SanitizedText,
    },
}

/// The count of one XID of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct XidCount {
    /// The GPU's position in the inventory.
    pub(super) gpu: u32,
    /// The XID.
    pub(super) code: u32,
    /// The count.
    pub(super) count: u64,
    /// The time of the last one.
    pub(super) at: UnixMs,
}

/// The identity of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GpuIdentity {
    /// Its index in NVML.
    pub(super) index: u32,
    /// Its UUID; none if the GPU was lost before it was first listed.
    pub(super) uuid: Option<SanitizedText>,
    /// Its product name.
    pub(super) model: Option<SanitizedText>,
    /// Its PCI address.
    pub(super) pci_bus_id: Option<SanitizedText>,
    /// Its board's serial number.
    pub(super) serial: Option<SanitizedText>,
    /// The version of its board's firmware.
    pub(super) vbios: Option<SanitizedText>,
}

/// The readings of one GPU in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct GpuRoundReadings {
    /// Whether the driver reported the GPU as lost, or did not find it.
    pub(super) lost: bool,
    /// Each reading.
    pub(super) readings: Vec<(MetricId, Reading)>,
    /// The time over which the GPU's own counters were averaged, in seconds.
    pub(super) span: f64,
    /// The part of it in which the multiprocessors were almost idle.
    pub(super) below: f64,
    /// Text attributes.
    pub(super) words: Vec<(GpuAttribute, SanitizedText)>,
    /// Its links, instances and processes.
    pub(super) parts: Vec<GpuPart>,
}

impl GpuRoundReadings {
    /// The reading of a metric, if there is one.
    pub(super) fn find_reading(&self, metric: MetricId) -> Option<Reading> {
        self.readings.iter().find(|(id, _)| *id == metric).map(|(_, reading)| *reading)
    }
}

/// A text attribute of a GPU that can change at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GpuAttribute {
    /// Which processes may compute on it.
    ComputeMode,
    /// Whether the driver stays loaded without clients.
    Persistence,
    /// Its NVLink domain.
    ClusterUuid,
    /// Its clique in the domain.
    Clique,
}

impl GpuAttribute {
    /// The label on the page.
    pub(super) const fn label_name(self) -> &'static str {
        match self {
            Self::ComputeMode => "compute_mode",
            Self::Persistence => "persistence",
            Self::ClusterUuid => "cluster_uuid",
            Self::Clique => "clique",
        }
    }
}

/// The readings of one part of a GPU in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GpuPart {
    /// What kind of part it is.
    pub(super) class: DeviceClass,
    /// Which one it is.
    pub(super) number: u32,
    /// Each reading.
    pub(super) readings: Vec<(MetricId, Reading)>,
    /// The time over which its own rates were averaged, in seconds.
    pub(super) span: f64,
    /// Its identity: labels of its info series.
    pub(super) labels: Vec<(SanitizedText, SanitizedText)>,
}

impl GpuPart {
    /// A part with readings and without labels.
    pub(super) fn of(class: DeviceClass, number: u32, readings: Vec<(MetricId, Reading)>) -> Self {
        Self { class, number, readings, span: 0.0, labels: Vec::new() }
    }

    /// The reading of a metric, if there is one.
    pub(super) fn find_reading(&self, metric: MetricId) -> Option<Reading> {
        self.readings.iter().find(|(id, _)| *id == metric).map(|(_, reading)| *reading)
    }

    /// The value of its label with this name.
    pub(super) fn find_label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, text)| &**text)
    }
}

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PipeError {
    /// The pipe ended, or broke.
    #[error("the worker's pipe ended: {}", plain_error::io(.0))]
    Io(#[from] io::Error),
    /// The length of a message exceeds the limit.
    #[error("the worker announced a message of {0} bytes, over the limit of {MAX_MESSAGE}")]
    TooLong(usize),
    /// A message is not valid.
    #[error("the worker sent an invalid message: {}", plain_error::json_without_place(.0))]
    Malformed(#[from] serde_json::Error),
}

/// Writes one message, and flushes it.
pub(super) fn write_message(
    message: &WorkerMessage,
    pipe: &mut impl Write,
) -> Result<(), PipeError> {
    let mut frame = vec![0; size_of::<u32>()];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - size_of::<u32>();
    if length > MAX_MESSAGE {
        return Err(PipeError::TooLong(length));
    }
    frame[..size_of::<u32>()].copy_from_slice(&(length as u32).to_le_bytes());
    // One write, so that a message is complete or missing when the worker is killed in between.
    pipe.write_all(&frame)?;
    Ok(pipe.flush()?)
}

/// Reads one message, waiting for it.
pub(super) fn read_message(
    pipe: &mut impl Read,
    buffer: &mut Vec<u8>,
) -> Result<WorkerMessage, PipeError> {
    let mut length = [0; size_of::<u32>()];
    pipe.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(PipeError::TooLong(length));
    }
    buffer.resize(length, 0);
    pipe.read_exact(buffer)?;
    Ok(serde_json::from_slice(buffer)?)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{AbsenceReason, catalogue::gpu};

    use super::*;
    use crate::nvml::driver_call::Call;

    fn round_trip(message: &WorkerMessage) -> WorkerMessage {
        let mut wire = Vec::new();
        write_message(message, &mut wire).unwrap();
        let mut rest = wire.as_slice();
        let decoded = read_message(&mut rest, &mut Vec::new()).unwrap();
        assert!(rest.is_empty());
        decoded
    }

    #[test]
    fn message_round_trip_preserves_content() {
        let readings = vec![
            (gpu::POWER, Reading::of(512.123)),
            (gpu::MEMORY_USED, Reading::of(85_899_345_920.0)),
            (gpu::ENERGY, AbsenceReason::NoPermission.into()),
        ];
        let gpus = vec![GpuRoundReadings { readings, ..GpuRoundReadings::default() }];
        let tick = WorkerMessage::Tick { at: UnixMs(5), seconds: 0.125, gpus, failures: vec![] };
        assert_eq!(round_trip(&tick), tick);
        let call = OngoingCall { call: Call::PowerUsage, gpu: Some(3), millis: 500 };
        assert_eq!(round_trip(&WorkerMessage::Calling(call)), WorkerMessage::Calling(call));
    }

    #[test]
    fn truncated_long_and_foreign_messages_have_different_errors() {
        let mut buffer = Vec::new();
        let truncated: &[u8] = &[9, 0, 0, 0, b'{'];
        assert!(matches!(read_message(&mut { truncated }, &mut buffer), Err(PipeError::Io(_))));
        let long: &[u8] = &[0, 0, 0, 0xff];
        let Err(PipeError::TooLong(length)) = read_message(&mut { long }, &mut buffer) else {
            panic!()
        };
        assert_eq!(length, 0xff00_0000);
        let foreign: &[u8] = &[2, 0, 0, 0, b'h', b'i'];
        assert!(matches!(
            read_message(&mut { foreign }, &mut buffer),
            Err(PipeError::Malformed(_))
        ));
    }
}
