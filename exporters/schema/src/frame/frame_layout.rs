//! The layout part: which devices a node has, and what is measured on them. Equal nodes have equal layouts.

use super::{
    FrameError, LayoutHash,
    bytes::{ByteDecoder, encode_number, encode_text, zigzag_decode, zigzag_encode},
    frame_format::MOST_COLUMNS,
};
use crate::{
    CowList, Device, DeviceClass, LimitExceeded, MetricId, Quota, SanitizedText, ScrapeFailure,
    catalogue::find_rows,
};

/// The position of a device of a class that is unknown here, or of none.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// One metric and the devices that it is measured on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayoutColumn {
    /// The metric; none if it is unknown here.
    pub(super) metric: Option<MetricId>,
    /// How many devices.
    pub(super) length: u32,
}

/// The devices of a node, and what is measured on them.
#[derive(Debug)]
pub struct FrameLayout {
    hash: LayoutHash,
    bytes: Box<[u8]>,
    /// The devices of known classes.
    pub(super) devices: CowList<Device>,
    /// For each device on the wire, its position among the known ones.
    pub(super) positions: Box<[u32]>,
    pub(super) columns: Box<[LayoutColumn]>,
    /// For each reading, the position of its device among the known ones, column after column.
    pub(super) readings: Box<[u32]>,
    /// How many readings are of known metrics and devices.
    pub(super) known_readings: usize,
}

impl FrameLayout {
    /// A layout of these devices; each column has positions among them.
    pub(super) fn new(devices: &[Device], columns: &[(MetricId, Vec<u32>)]) -> Self {
        let mut out = Vec::new();
        encode_number(devices.len() as u64, &mut out);
        for device in devices {
            encode_text(device.class.as_str(), &mut out);
            encode_number(device.key.len() as u64, &mut out);
            device.key.iter().for_each(|part| encode_text(part, &mut out));
        }
        encode_number(columns.len() as u64, &mut out);
        for (metric, devices) in columns {
            let row = metric.catalogue_row();
            encode_text(row.name, &mut out);
            encode_text(row.tag.map_or("", |(_, value)| value), &mut out);
            encode_number(devices.len() as u64, &mut out);
            let mut next = 0;
            for device in devices {
                encode_number(zigzag_encode(i64::from(*device) - next), &mut out);
                next = i64::from(*device) + 1;
            }
        }
        // The encoded layout is valid, and as large as its report.
        Self::decode_layout(&out, usize::MAX).unwrap_or_else(|_| Self::empty_layout())
    }

    fn empty_layout() -> Self {
        let bytes: Box<[u8]> = Box::new([0, 0]);
        let (positions, columns, readings) = (Box::default(), Box::default(), Box::default());
        let devices = CowList::default();
        Self {
            hash: LayoutHash::of(&bytes),
            bytes,
            devices,
            positions,
            columns,
            readings,
            known_readings: 0,
        }
    }

    /// Decodes a layout of at most `max_readings` readings.
    pub(super) fn decode_layout(encoded: &[u8], max_readings: usize) -> Result<Self, LayoutError> {
        let mut bytes = ByteDecoder::new("layout", encoded);
        let count = bytes.decode_count()?;
        if count > max_readings {
            return Err(LayoutError::TooMany(count as u64));
        }
        let (mut devices, mut positions) = (Vec::new(), Vec::with_capacity(count));
        for _ in 0..count {
            let device = decode_device(&mut bytes)?;
            positions.push(device.as_ref().map_or(UNKNOWN, |_| devices.len() as u32));
            devices.extend(device);
        }
        let count = bytes.decode_count()?;
        if count > MOST_COLUMNS {
            return Err(FrameError::Columns(count as u64).into());
        }
        let (mut columns, mut readings) = (Vec::with_capacity(count), Vec::new());
        let mut known_readings = 0;
        for _ in 0..count {
            let metric = find_metric(&bytes.decode_text()?, &bytes.decode_text()?);
            let length = bytes.decode_count()?;
            if readings.len() + length > max_readings {
                return Err(LayoutError::TooMany((readings.len() + length) as u64));
            }
            columns.push(LayoutColumn { metric, length: length as u32 });
            let mut next = 0_i64;
            for _ in 0..length {
                let number = next.wrapping_add(zigzag_decode(bytes.decode_number()?));
                let position =
                    usize::try_from(number).ok().and_then(|number| positions.get(number)).copied();
                let position = position.ok_or(FrameError::Number(
                    "layout",
                    number as u64,
                    positions.len() as u64,
                ))?;
                let is_of_class = |device: &Device| {
                    metric.is_some_and(|metric| metric.catalogue_row().class == device.class)
                };
                let position = if devices.get(position as usize).is_some_and(is_of_class) {
                    position
                } else {
                    UNKNOWN
                };
                known_readings += usize::from(position != UNKNOWN);
                readings.push(position);
                next = number.wrapping_add(1);
            }
        }
        bytes.expect_end()?;
        let (positions, columns, readings) = (positions.into(), columns.into(), readings.into());
        let (hash, bytes, devices) = (LayoutHash::of(encoded), encoded.into(), devices.into());
        Ok(Self { hash, bytes, devices, positions, columns, readings, known_readings })
    }

    /// Its hash.
    pub fn content_hash(&self) -> LayoutHash {
        self.hash
    }

    /// The layout as encoded on the wire.
    pub(super) fn encoded_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many readings a frame with this layout has.
    pub(super) fn reading_count(&self) -> usize {
        self.readings.len()
    }

    /// The memory that it uses, in bytes, approximately.
    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.devices.iter().flat_map(|device| device.key.iter());
        self.bytes.len()
            + size_of_val(&*self.positions)
            + size_of_val(&*self.columns)
            + size_of_val(&*self.readings)
            + self.devices.len() * size_of::<Device>()
            + keys.map(|key| key.len() + 32).sum::<usize>()
    }
}

/// Why a layout is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayoutError {
    Fault(FrameError),
    /// It has this many devices or readings.
    TooMany(u64),
}

impl From<FrameError> for LayoutError {
    fn from(fault: FrameError) -> Self {
        Self::Fault(fault)
    }
}

impl LayoutError {
    /// The scrape failure for a frame with this layout; `limit` is the limit of samples.
    pub(super) fn into_failure(self, limit: usize) -> ScrapeFailure {
        match self {
            Self::Fault(fault) => fault.into(),
            Self::TooMany(count) => {
                let limit = limit as u64;
                ScrapeFailure::OverBudget(LimitExceeded {
                    budget: Quota::Samples,
                    found: count,
                    limit,
                })
            }
        }
    }
}

fn decode_device(bytes: &mut ByteDecoder<'_>) -> Result<Option<Device>, FrameError> {
    let class = bytes.decode_text()?;
    let class = DeviceClass::ALL.into_iter().find(|other| other.as_str() == class);
    let parts = bytes.decode_count()?;
    let is_valid = class
        .is_some_and(|class| class.key_label_names().len() == parts && class != DeviceClass::Fleet);
    let mut key = Vec::new();
    for _ in 0..parts {
        let part = bytes.decode_text()?;
        if is_valid {
            key.push(SanitizedText::new(&part));
        }
    }
    // Without a name the device cannot be identified.
    let named = key.iter().all(|part| !part.is_empty());
    Ok(class.filter(|_| is_valid && named).map(|class| Device { class, key: key.into() }))
}

/// The metric with this name and this value of its fixed label, if it is known here.
pub(super) fn find_metric(name: &str, tag: &str) -> Option<MetricId> {
    let named = find_rows(name).filter(|named| named.first.catalogue_row().name == name)?;
    let mut rows = (named.first.0..named.first.0 + named.rows).map(MetricId);
    rows.find(|id| id.catalogue_row().tag.map_or("", |(_, value)| value) == tag)
}
