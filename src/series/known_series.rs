//! Known series: what each received series is, by two hashes of its labels.
//!
//! A sender repeats the order of its series. The one after the series that was found last is nearly always the next one,
//! which lies beside it in memory; a map of millions would cost several cache misses for each sample.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Two hashes of the labels of a series by different seeds: that two series share both is excluded in practice.
pub(crate) type SeriesKey = (u64, u64);

/// The key of a removed series.
const REMOVED: SeriesKey = (0, 0);

/// No series.
const NONE: u32 = u32::MAX;

/// Series by key; the number of series is bounded by the caller.
#[derive(Debug)]
pub(crate) struct KnownSeries<S> {
    places: HashMap<SeriesKey, u32, RandomState>,
    entries: Vec<KnownEntry<S>>,
    /// Places of removed series.
    free: Vec<u32>,
    /// The place of the series that was found or added last.
    last: u32,
}

#[derive(Debug)]
struct KnownEntry<S> {
    key: SeriesKey,
    series: S,
    /// The place of the series that came after this one last time.
    next: u32,
}

impl<S> Default for KnownSeries<S> {
    fn default() -> Self {
        Self { places: HashMap::default(), entries: Vec::new(), free: Vec::new(), last: NONE }
    }
}

impl<S: Copy> KnownSeries<S> {
    /// The number of series.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// What the series with this key is; none if it is not known.
    pub(crate) fn find(&mut self, key: SeriesKey) -> Option<S> {
        let previous = self.entries.get(self.last as usize);
        let guess = previous.map_or(NONE, |previous| previous.next);
        if let Some(entry) = self.entries.get(guess as usize).filter(|entry| entry.key == key) {
            self.last = guess;
            return Some(entry.series);
        }
        let place = *self.places.get(&key)?;
        self.follow_last(place);
        Some(self.entries[place as usize].series)
    }

    /// Adds a series that is not known.
    pub(crate) fn insert(&mut self, key: SeriesKey, series: S) {
        let entry = KnownEntry { key, series, next: NONE };
        let place = if let Some(place) = self.free.pop() {
            self.entries[place as usize] = entry;
            place
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.places.insert(key, place);
        self.follow_last(place);
    }

    /// Removes a series, if it is known.
    pub(crate) fn remove(&mut self, key: SeriesKey) {
        if let Some(place) = self.places.remove(&key) {
            self.entries[place as usize].key = REMOVED;
            self.free.push(place);
        }
    }

    /// Notes that the series of this place came after the last one.
    fn follow_last(&mut self, place: u32) {
        if let Some(previous) = self.entries.get_mut(self.last as usize) {
            previous.next = place;
        }
        self.last = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_in_any_order_and_not_after_they_were_removed() {
        let mut known = KnownSeries::default();
        let key = |number: u64| (number * 7 + 1, number * 13 + 1);
        for number in 0..100 {
            assert_eq!(known.find(key(number)), None);
            known.insert(key(number), number);
        }
        let orders = [(0..100).collect::<Vec<u64>>(), (0..100).rev().collect(), vec![5, 5, 99, 0]];
        for number in orders.iter().chain(&orders).flatten() {
            assert_eq!(known.find(key(*number)), Some(*number));
        }
        // The series that comes after 49 is gone, and another one has its place.
        known.find(key(49));
        known.remove(key(50));
        assert_eq!((known.find(key(50)), known.len()), (None, 99));
        known.insert(key(200), 200);
        for number in [49, 200, 51, 49, 200] {
            assert_eq!(known.find(key(number)), Some(number));
        }
        assert_eq!((known.find(key(50)), known.entries.len()), (None, 100));
    }
}
