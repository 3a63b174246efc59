//! The layout: which devices a node has, and what is measured on them. Equal nodes have equal layouts.

use super::{
    Fault, Hash,
    bytes::{Bytes, fold, put_number, put_text, unfold},
};
use crate::{Budget, Class, Device, Excess, Failure, MetricId, Safe, Shared, catalogue::named};

/// A layout has at most so many columns: there are no more metrics than have a number.
pub(super) const MOST_COLUMNS: usize = 1 << 16;

/// A device of a class that is not known here, or of none.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// One metric and the devices that it is measured on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Which one; none if it is not known here.
    pub(super) metric: Option<MetricId>,
    /// How many devices.
    pub(super) length: u32,
}

/// Which devices a node has, and what is measured on them.
#[derive(Debug)]
pub struct Layout {
    hash: Hash,
    bytes: Box<[u8]>,
    /// Those devices that are known here.
    pub(super) devices: Shared<Device>,
    /// The place of each device on the wire among those that are known here.
    pub(super) places: Box<[u32]>,
    pub(super) columns: Box<[Column]>,
    /// For each reading the device among those that are known here, column after column.
    pub(super) readings: Box<[u32]>,
    /// How many readings are of metrics and devices that are known here.
    pub(super) known: usize,
}

impl Layout {
    /// A layout of these devices, each of the columns with positions among them.
    pub(super) fn new(devices: &[Device], columns: &[(MetricId, Vec<u32>)]) -> Self {
        let mut out = Vec::new();
        put_number(devices.len() as u64, &mut out);
        for device in devices {
            put_text(device.class.as_str(), &mut out);
            put_number(device.key.len() as u64, &mut out);
            device.key.iter().for_each(|part| put_text(part, &mut out));
        }
        put_number(columns.len() as u64, &mut out);
        for (metric, devices) in columns {
            let row = metric.row();
            put_text(row.name, &mut out);
            put_text(row.tag.map_or("", |(_, value)| value), &mut out);
            put_number(devices.len() as u64, &mut out);
            let mut next = 0;
            for device in devices {
                put_number(fold(i64::from(*device) - next), &mut out);
                next = i64::from(*device) + 1;
            }
        }
        // What was written here is a layout, and as large as its report.
        Self::read(&out, usize::MAX).unwrap_or_else(|_| Self::empty())
    }

    fn empty() -> Self {
        let bytes: Box<[u8]> = Box::new([0, 0]);
        let (places, columns, readings) = (Box::default(), Box::default(), Box::default());
        let devices = Shared::default();
        Self { hash: Hash::of(&bytes), bytes, devices, places, columns, readings, known: 0 }
    }

    /// Reads a layout of at most so many readings.
    pub(super) fn read(told: &[u8], most: usize) -> Result<Self, Wrong> {
        let mut bytes = Bytes::new("layout", told);
        let count = bytes.count()?;
        if count > most {
            return Err(Wrong::TooMany(count as u64));
        }
        let (mut devices, mut places) = (Vec::new(), Vec::with_capacity(count));
        for _ in 0..count {
            let device = read_device(&mut bytes)?;
            places.push(device.as_ref().map_or(UNKNOWN, |_| devices.len() as u32));
            devices.extend(device);
        }
        let count = bytes.count()?;
        if count > MOST_COLUMNS {
            return Err(Fault::Columns(count as u64).into());
        }
        let (mut columns, mut readings) = (Vec::with_capacity(count), Vec::new());
        let mut known = 0;
        for _ in 0..count {
            let metric = metric(&bytes.text()?, &bytes.text()?);
            let length = bytes.count()?;
            if readings.len() + length > most {
                return Err(Wrong::TooMany((readings.len() + length) as u64));
            }
            columns.push(Column { metric, length: length as u32 });
            let mut next = 0_i64;
            for _ in 0..length {
                let at = next.wrapping_add(unfold(bytes.number()?));
                let place = usize::try_from(at).ok().and_then(|at| places.get(at)).copied();
                let place = place.ok_or(Fault::Number("layout", at as u64, places.len() as u64))?;
                let fits = |device: &Device| metric.is_some_and(|m| m.row().class == device.class);
                let place =
                    if devices.get(place as usize).is_some_and(fits) { place } else { UNKNOWN };
                known += usize::from(place != UNKNOWN);
                readings.push(place);
                next = at.wrapping_add(1);
            }
        }
        bytes.end()?;
        let (places, columns, readings) = (places.into(), columns.into(), readings.into());
        let (hash, bytes, devices) = (Hash::of(told), told.into(), devices.into());
        Ok(Self { hash, bytes, devices, places, columns, readings, known })
    }

    /// Its name.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// As it goes over the wire.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many readings a frame of it has.
    pub(super) fn readings(&self) -> usize {
        self.readings.len()
    }

    /// The bytes that it holds, about.
    pub(super) fn size(&self) -> usize {
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
pub(super) enum Wrong {
    Fault(Fault),
    /// It has so many devices or readings.
    TooMany(u64),
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Wrong {
    /// What becomes of the frame, of which at most so many samples are taken.
    pub(super) fn failure(self, limit: usize) -> Failure {
        match self {
            Self::Fault(fault) => fault.into(),
            Self::TooMany(found) => {
                let limit = limit as u64;
                Failure::OverBudget(Excess { budget: Budget::Samples, found, limit })
            }
        }
    }
}

fn read_device(bytes: &mut Bytes<'_>) -> Result<Option<Device>, Fault> {
    let class = bytes.text()?;
    let class = Class::ALL.into_iter().find(|known| known.as_str() == class);
    let parts = bytes.count()?;
    let fits = class.is_some_and(|class| class.labels().len() == parts && class != Class::Fleet);
    let mut key = Vec::new();
    for _ in 0..parts {
        let part = bytes.text()?;
        if fits {
            key.push(Safe::new(&part));
        }
    }
    // Without a name nobody could tell which one it is.
    let named = key.iter().all(|part| !part.is_empty());
    Ok(class.filter(|_| fits && named).map(|class| Device { class, key: key.into() }))
}

/// The metric of a name and the value of its fixed label, if it is known here.
pub(super) fn metric(name: &str, tag: &str) -> Option<MetricId> {
    let named = named(name).filter(|named| named.first.row().name == name)?;
    let mut rows = (named.first.0..named.first.0 + named.rows).map(MetricId);
    rows.find(|id| id.row().tag.map_or("", |(_, value)| value) == tag)
}
