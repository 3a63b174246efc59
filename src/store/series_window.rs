//! Series window: the last steps of each series, which become requests with several samples a series.
//!
//! Steps repeat each other: nearly every series follows the same one as in the step before. Each remembers its successor,
//! so that a sample costs a comparison of its labels, not their encoding.

use gaunt_schema::UnixMs;
use hashbrown::HashTable;

use crate::{
    request_batch::{RequestBatch, RequestSplitter},
    series_key::{SeriesHasher, key_matches, write_key},
    window_file::WindowRecord,
    write_request::{MAX_SAMPLE, STALE_MARKER, SampleField, encode_labels},
};

/// Most steps of a window: names are then sent once in a minute, which nearly halves the bytes.
pub(crate) const STEPS: usize = 4;

/// The most labels of a series.
const MAX_LABELS: usize = 32;

/// Steps after which a series that is absent is ended with a stale marker.
const ABSENT_STEPS: u8 = 2;

/// Label of the job that a scrape adds; the scheduler's job is `exported_job`, as in what Prometheus scrapes.
const JOB: (&str, &str) = ("job", "gaunt");

/// No series.
const NONE: u32 = u32::MAX;

/// One series and its samples that are not in a request yet.
#[derive(Debug)]
struct WindowSeries {
    /// Its labels as fields of a request, then its key. Empty in a free place.
    text: Box<[u8]>,
    labels_end: u32,
    /// The series that followed it in the last step.
    next: u32,
    /// The value of each step; only those in `present` are valid.
    bits: [u64; STEPS],
    /// The steps with a sample, a bit each.
    present: u8,
    /// Steps without a sample since the last one.
    absent: u8,
    /// Whether a record of this window has its labels.
    is_recorded: bool,
}

impl WindowSeries {
    fn labels(&self) -> &[u8] {
        &self.text[..self.labels_end as usize]
    }

    fn key(&self) -> &[u8] {
        &self.text[self.labels_end as usize..]
    }
}

/// The last steps of each series, of about 250 bytes each.
#[derive(Debug)]
pub(crate) struct SeriesWindow {
    /// Labels that all series have.
    common: Vec<(String, String)>,
    /// Steps of a window.
    steps: usize,
    /// The most series.
    max_series: usize,
    /// By number; numbers of ended series are used again in another window.
    series: Vec<WindowSeries>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: SeriesHasher,
    key: Vec<u8>,
    /// The series of the sample before, and the one that began the last step.
    last: u32,
    first: u32,
    /// Instants of the finished steps.
    instants: Vec<UnixMs>,
    /// Samples of the present step.
    pushed: usize,
    /// Samples over the limits since they were taken.
    left_out: u64,
}

impl SeriesWindow {
    /// An empty window of at most [`STEPS`] steps; `common` labels are added to each series.
    pub(crate) fn new(common: Vec<(String, String)>, steps: usize, max_series: usize) -> Self {
        Self {
            common,
            steps: steps.min(STEPS),
            max_series,
            series: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            hasher: SeriesHasher::default(),
            key: Vec::new(),
            last: NONE,
            first: NONE,
            instants: Vec::new(),
            pushed: 0,
            left_out: 0,
        }
    }

    /// Adds a sample to the present step; the label `job` becomes `exported_job`. A series that is twice in a step keeps its
    /// first sample.
    pub(crate) fn push_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let predicted = match self.series.get(self.last as usize) {
            Some(last) => last.next,
            None => self.first,
        };
        let is_predicted = self
            .series
            .get(predicted as usize)
            .is_some_and(|series| key_matches(series.key(), name, labels));
        let number = if is_predicted { predicted } else { self.find_series(name, labels) };
        let step = self.instants.len();
        let Some(series) = self.series.get_mut(number as usize).filter(|_| step < STEPS) else {
            self.left_out += 1;
            return;
        };
        if series.present & (1 << step) == 0 {
            series.bits[step] = value.to_bits();
            series.present |= 1 << step;
            self.pushed += 1;
        }
        if !is_predicted {
            match self.series.get_mut(self.last as usize) {
                Some(last) => last.next = number,
                None => self.first = number,
            }
        }
        self.last = number;
    }

    /// The number of a series, which is added if it is new; [`NONE`] if there is no room for it.
    #[cold]
    fn find_series(&mut self, name: &str, labels: &[(&str, &str)]) -> u32 {
        self.key.clear();
        write_key(name, labels, &mut self.key);
        let (key, series) = (&self.key, &self.series);
        let hash = self.hasher.hash_key(key);
        let is_same = |number: &u32| series[*number as usize].key() == key.as_slice();
        if let Some(number) = self.by_key.find(hash, is_same) {
            return *number;
        }
        let count = labels.len() + self.common.len() + 2;
        if self.by_key.len() >= self.max_series || count > MAX_LABELS {
            return NONE;
        }
        let mut sorted = [("", ""); MAX_LABELS];
        let renamed = labels.iter().map(|(name, value)| match *name {
            "job" => ("exported_job", *value),
            name => (name, *value),
        });
        let common = self.common.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all = [("__name__", name), JOB].into_iter().chain(common).chain(renamed);
        for (place, label) in sorted.iter_mut().zip(all) {
            *place = label;
        }
        let mut text = Vec::new();
        encode_labels(&mut sorted[..count], &mut text);
        let labels_end = text.len() as u32;
        text.extend_from_slice(&self.key);
        let new_series = WindowSeries {
            text: text.into_boxed_slice(),
            labels_end,
            next: NONE,
            bits: [0; STEPS],
            present: 0,
            absent: 0,
            is_recorded: false,
        };
        let number = if let Some(number) = self.free.pop() {
            self.series[number as usize] = new_series;
            number
        } else {
            self.series.push(new_series);
            self.series.len() as u32 - 1
        };
        let (series, hasher) = (&self.series, &self.hasher);
        self.by_key.insert_unique(hash, number, |it| hasher.hash_key(series[*it as usize].key()));
        number
    }

    /// Number of samples of the present step.
    pub(crate) fn pushed_count(&self) -> usize {
        self.pushed
    }

    /// Ends the present step, which was at this instant, and the series that are absent for the second time. A record
    /// receives its samples.
    pub(crate) fn finish_step(&mut self, at: UnixMs, mut record: Option<&mut WindowRecord>) {
        let step = self.instants.len();
        let bit = 1_u8 << step;
        for (number, series) in self.series.iter_mut().enumerate() {
            if series.text.is_empty() {
                continue;
            }
            if series.present & bit != 0 {
                series.absent = 0;
            } else {
                series.absent = series.absent.saturating_add(1);
                if series.absent != ABSENT_STEPS {
                    continue;
                }
                series.bits[step] = STALE_MARKER;
                series.present |= bit;
            }
            if let Some(record) = &mut record {
                let is_known = std::mem::replace(&mut series.is_recorded, true);
                let labels = (!is_known).then(|| &series.text[..series.labels_end as usize]);
                record.push_sample(number as u32, series.bits[step], labels);
            }
        }
        self.instants.push(at);
        (self.last, self.pushed) = (NONE, 0);
    }

    /// Whether the step that is ended next is the last one of the window.
    pub(crate) fn is_last_step(&self) -> bool {
        self.instants.len() + 1 >= self.steps
    }

    /// Takes all samples as requests. Ended series are forgotten.
    pub(crate) fn take_requests(&mut self) -> Vec<RequestBatch> {
        let mut splitter = RequestSplitter::default();
        let mut ended = Vec::new();
        // All series have samples at the same instants.
        let fields: Vec<(UnixMs, SampleField)> =
            self.instants.iter().map(|at| (*at, SampleField::at_instant(*at))).collect();
        for (number, series) in self.series.iter_mut().enumerate() {
            if series.text.is_empty() {
                continue;
            }
            let mut samples = [0; STEPS * MAX_SAMPLE];
            let (mut end, mut count, mut span) = (0, 0, None);
            for (step, (at, field)) in fields.iter().enumerate() {
                if series.present & (1 << step) != 0
                    && let Some(room) = samples[end..].first_chunk_mut()
                {
                    end += field.write_value(series.bits[step], room);
                    count += 1;
                    span = Some((span.map_or(*at, |(oldest, _)| oldest), *at));
                }
            }
            if let Some(span) = span {
                splitter.push_encoded(series.labels(), &samples[..end], count, span);
            }
            (series.present, series.is_recorded) = (0, false);
            if series.absent >= ABSENT_STEPS {
                ended.push(number as u32);
            }
        }
        for number in ended {
            self.forget_series(number);
        }
        self.instants.clear();
        splitter.finish()
    }

    fn forget_series(&mut self, number: u32) {
        let hash = self.hasher.hash_key(self.series[number as usize].key());
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        let series = &mut self.series[number as usize];
        (series.text, series.labels_end) = (Box::default(), 0);
        self.free.push(number);
    }

    /// Forgets that a record of this window was made: it was not kept.
    pub(crate) fn forget_records(&mut self) {
        self.series.iter_mut().for_each(|series| series.is_recorded = false);
    }

    /// Number of series.
    pub(crate) fn series_count(&self) -> usize {
        self.by_key.len()
    }

    /// Takes the number of samples left out since the last call.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests;
