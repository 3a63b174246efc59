//! The layout: which devices a node has, and what is measured on them. Equal nodes have equal layouts.

use super::{
    FrameError, LayoutHash,
    bytes::{ByteDecoder, encode_number, encode_text, zigzag_decode, zigzag_encode},
};
use crate::{
    CowList, Device, DeviceClass, LimitExceeded, MetricId, Quota, SanitizedText, ScrapeFailure,
    catalogue::find_rows,
};

/// A layout has at most so many columns: there are no more metrics than have a number.
pub(super) const MOST_COLUMNS: usize = 1 << 16;

/// A device of a class that is not known here, or of none.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// One metric and the devices that it is measured on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayoutColumn {
    /// Which one; none if it is not known here.
    pub(super) metric: Option<MetricId>,
    /// How many devices.
    pub(super) length: u32,
}

/// Which devices a node has, and what is measured on them.
#[derive(Debug)]
pub struct FrameLayout {
    hash: LayoutHash,
    bytes: Box<[u8]>,
    /// Those devices that are known here.
    pub(super) devices: CowList<Device>,
    /// The place of each device on the wire among those that are known here.
    pub(super) places: Box<[u32]>,
    pub(super) columns: Box<[LayoutColumn]>,
    /// For each reading the device among those that are known here, column after column.
    pub(super) readings: Box<[u32]>,
    /// How many readings are of metrics and devices that are known here.
    pub(super) known: usize,
}

impl FrameLayout {
    /// A layout of these devices, each of the columns with positions among them.
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
        // What was written here is a layout, and as large as its report.
        Self::decode_layout(&out, usize::MAX).unwrap_or_else(|_| Self::empty_layout())
    }

    fn empty_layout() -> Self {
        let bytes: Box<[u8]> = Box::new([0, 0]);
        let (places, columns, readings) = (Box::default(), Box::default(), Box::default());
        let devices = CowList::default();
        Self { hash: LayoutHash::of(&bytes), bytes, devices, places, columns, readings, known: 0 }
    }

    /// Reads a layout of at most so many readings.
    pub(super) fn decode_layout(told: &[u8], most: usize) -> Result<Self, LayoutError> {
        let mut bytes = ByteDecoder::new("layout", told);
        let count = bytes.decode_count()?;
        if count > most {
            return Err(LayoutError::TooMany(count as u64));
        }
        let (mut devices, mut places) = (Vec::new(), Vec::with_capacity(count));
        for _ in 0..count {
            let device = decode_device(&mut bytes)?;
            places.push(device.as_ref().map_or(UNKNOWN, |_| devices.len() as u32));
            devices.extend(device);
        }
        let count = bytes.decode_count()?;
        if count > MOST_COLUMNS {
            return Err(FrameError::Columns(count as u64).into());
        }
        let (mut columns, mut readings) = (Vec::with_capacity(count), Vec::new());
        let mut known = 0;
        for _ in 0..count {
            let metric = find_metric(&bytes.decode_text()?, &bytes.decode_text()?);
            let length = bytes.decode_count()?;
            if readings.len() + length > most {
                return Err(LayoutError::TooMany((readings.len() + length) as u64));
            }
            columns.push(LayoutColumn { metric, length: length as u32 });
            let mut next = 0_i64;
            for _ in 0..length {
                let at = next.wrapping_add(zigzag_decode(bytes.decode_number()?));
                let place = usize::try_from(at).ok().and_then(|at| places.get(at)).copied();
                let place =
                    place.ok_or(FrameError::Number("layout", at as u64, places.len() as u64))?;
                let fits = |device: &Device| {
                    metric.is_some_and(|m| m.catalogue_row().class == device.class)
                };
                let place =
                    if devices.get(place as usize).is_some_and(fits) { place } else { UNKNOWN };
                known += usize::from(place != UNKNOWN);
                readings.push(place);
                next = at.wrapping_add(1);
            }
        }
        bytes.expect_end()?;
        let (places, columns, readings) = (places.into(), columns.into(), readings.into());
        let (hash, bytes, devices) = (LayoutHash::of(told), told.into(), devices.into());
        Ok(Self { hash, bytes, devices, places, columns, readings, known })
    }

    /// Its name.
    pub fn content_hash(&self) -> LayoutHash {
        self.hash
    }

    /// As it goes over the wire.
    pub(super) fn encoded_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many readings a frame of it has.
    pub(super) fn reading_count(&self) -> usize {
        self.readings.len()
    }

    /// The bytes that it holds, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.devices.iter().flat_map(|device| device.key.iter());
        self.bytes.len()
            + size_of_val(&*self.places)
            + size_of_val(&*self.columns)
            + size_of_val(&*self.readings)
            + self.devices.len() * size_of::<Device>()
            + keys.map(|key| key.len() + 32).sum::<usize>()
    }
}

/// Why something is no layout that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayoutError {
    Fault(FrameError),
    /// It has so many devices or readings.
    TooMany(u64),
}

impl From<FrameError> for LayoutError {
    fn from(fault: FrameError) -> Self {
        Self::Fault(fault)
    }
}

impl LayoutError {
    /// What becomes of the frame, of which at most so many samples are taken.
    pub(super) fn into_failure(self, limit: usize) -> ScrapeFailure {
        match self {
            Self::Fault(fault) => fault.into(),
            Self::TooMany(found) => {
                let limit = limit as u64;
                ScrapeFailure::OverBudget(LimitExceeded { budget: Quota::Samples, found, limit })
            }
        }
    }
}

fn decode_device(bytes: &mut ByteDecoder<'_>) -> Result<Option<Device>, FrameError> {
    let class = bytes.decode_text()?;
    let class = DeviceClass::ALL.into_iter().find(|known| known.as_str() == class);
    let parts = bytes.decode_count()?;
    let fits = class
        .is_some_and(|class| class.key_label_names().len() == parts && class != DeviceClass::Fleet);
    let mut key = Vec::new();
    for _ in 0..parts {
        let part = bytes.decode_text()?;
        if fits {
            key.push(SanitizedText::new(&part));
        }
    }
    // Without a name nobody could tell which one it is.
    let named = key.iter().all(|part| !part.is_empty());
    Ok(class.filter(|_| fits && named).map(|class| Device { class, key: key.into() }))
}

/// The metric of a name and the value of its fixed label, if it is known here.
pub(super) fn find_metric(name: &str, tag: &str) -> Option<MetricId> {
    let named = find_rows(name).filter(|named| named.first.catalogue_row().name == name)?;
    let mut rows = (named.first.0..named.first.0 + named.rows).map(MetricId);
    rows.find(|id| id.catalogue_row().tag.map_or("", |(_, value)| value) == tag)
}
