//! Received page: the lines of one target, and its pages that are not whole yet.

use std::{collections::VecDeque, fmt::Write as _, time::Duration};

use gaunt_schema::UnixMs;

/// The time after which a page is taken as it is: Prometheus sends what it has at least each 5 s.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(6);

/// The most open pages of one target: a sender that catches up sends many instants at once.
const MAX_OPEN: usize = 32;

/// The most lines of one target, as of a page.
const MAX_LINES: usize = 200_000;

/// Pages after whose end a page may be whole before its time: what the first ones lack is not known.
const FIRST_PAGES: u32 = 2;

/// A line without a sample for this long is forgotten: processes and jobs come and go.
const UNUSED: Duration = Duration::from_mins(5);

/// How much older than its scrape a sample may be: exporters that state instants of their own collect once a minute.
const OLDEST_IN_SCRAPE: Duration = Duration::from_mins(5);

/// A sample of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageSample {
    /// Whether the target answered.
    Up(bool),
    /// How long the scrape took, in seconds.
    Duration(f64),
    /// The value of a line.
    Value(u32, f64),
}

/// A page that is complete.
#[derive(Debug)]
pub(crate) struct ClosedPage {
    pub(crate) at: UnixMs,
    pub(crate) is_up: bool,
    pub(crate) seconds: Option<f64>,
    pub(crate) text: String,
}

/// The lines and open pages of one target; series are known by their keys.
#[derive(Debug)]
pub(crate) struct TargetAssembly<K> {
    lines: Vec<ReceivedLine<K>>,
    /// The lines in use in the order of their texts, which does not depend on that of requests.
    order: Vec<u32>,
    unused: Vec<u32>,
    /// Lines that the next page must have to be whole.
    expected: u32,
    pages: VecDeque<OpenPage>,
    /// The instant of the last page, and the number of pages.
    closed: (UnixMs, u32),
    /// The last removal of unused lines.
    cleaned: UnixMs,
    /// Keys of series that are no lines.
    keys: Vec<K>,
}

/// A series as on the page, up to its value.
#[derive(Debug)]
struct ReceivedLine<K> {
    text: Box<str>,
    /// Keys of the series: those of a pair of senders are one line.
    keys: Vec<K>,
    is_expected: bool,
    last: UnixMs,
}

/// A page that is not whole yet.
#[derive(Debug)]
struct OpenPage {
    at: UnixMs,
    /// When its first sample arrived.
    opened: UnixMs,
    is_up: Option<bool>,
    seconds: Option<f64>,
    values: Vec<(u32, f64)>,
    expected_seen: u32,
}

impl<K> Default for TargetAssembly<K> {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            order: Vec::new(),
            unused: Vec::new(),
            expected: 0,
            pages: VecDeque::new(),
            closed: (UnixMs(0), 0),
            cleaned: UnixMs(0),
            keys: Vec::new(),
        }
    }
}

impl<K: Copy> TargetAssembly<K> {
    /// Number of open pages.
    pub(crate) fn open_pages(&self) -> usize {
        self.pages.len()
    }

    /// Notes the key of a series that is no line.
    pub(crate) fn add_key(&mut self, key: K) {
        self.keys.push(key);
    }

    /// The number of the line with this text, added if it is new.
    pub(crate) fn add_line(&mut self, text: String, key: K) -> u32 {
        let lines = &mut self.lines;
        let found = self.order.binary_search_by(|line| (*lines[*line as usize].text).cmp(&text));
        match found {
            Ok(position) => {
                let line = self.order[position];
                lines[line as usize].keys.push(key);
                line
            }
            Err(position) => {
                let (text, keys) = (text.into(), vec![key]);
                let new = ReceivedLine { text, keys, is_expected: false, last: UnixMs(0) };
                let line = if let Some(line) = self.unused.pop() {
                    lines[line as usize] = new;
                    line
                } else {
                    lines.push(new);
                    lines.len() as u32 - 1
                };
                self.order.insert(position, line);
                line
            }
        }
    }

    /// The series of a line has ended.
    pub(crate) fn end_line(&mut self, line: u32) {
        let line = &mut self.lines[line as usize];
        if std::mem::take(&mut line.is_expected) {
            self.expected -= 1;
        }
    }

    /// Adds a sample; false if its page is complete already, or if it is a duplicate.
    pub(crate) fn add_sample(&mut self, sample: PageSample, at: UnixMs, now: UnixMs) -> bool {
        if at <= self.closed.0 {
            // The next page waits for it.
            if let PageSample::Value(line, _) = sample
                && at == self.closed.0
                && self.lines[line as usize].last != at
            {
                self.expect_line(line);
            }
            return false;
        }
        let page = match self.pages.binary_search_by_key(&at, |page| page.at) {
            Ok(index) => &mut self.pages[index],
            Err(index) => {
                if self.pages.len() >= MAX_OPEN && index == 0 {
                    return false;
                }
                let page = OpenPage {
                    at,
                    opened: now,
                    is_up: None,
                    seconds: None,
                    values: Vec::with_capacity(self.expected as usize),
                    expected_seen: 0,
                };
                self.pages.insert(index, page);
                let is_lost = |page: &OpenPage| page.is_up.is_none();
                if self.pages.len() > MAX_OPEN && self.pages.front().is_some_and(is_lost) {
                    self.pages.pop_front();
                }
                let Ok(index) = self.pages.binary_search_by_key(&at, |page| page.at) else {
                    return false;
                };
                &mut self.pages[index]
            }
        };
        match sample {
            PageSample::Up(is_up) => page.is_up = Some(is_up),
            PageSample::Duration(seconds) => page.seconds = Some(seconds),
            PageSample::Value(line, value) => {
                let known = &mut self.lines[line as usize];
                if known.last == at || page.values.len() >= MAX_LINES {
                    return false;
                }
                known.last = known.last.max(at);
                page.expected_seen += u32::from(known.is_expected);
                page.values.push((line, value));
            }
        }
        true
    }

    fn expect_line(&mut self, line: u32) {
        let line = &mut self.lines[line as usize];
        if !std::mem::replace(&mut line.is_expected, true) {
            self.expected += 1;
        }
    }

    /// The oldest page, if it is whole, has waited long enough, or must give way to later ones that are whole.
    pub(crate) fn close_page(&mut self, now: UnixMs) -> Option<ClosedPage> {
        let has_pages = self.closed.1 >= FIRST_PAGES;
        let expected = self.expected;
        let is_whole = |page: &OpenPage| match page.is_up {
            Some(false) => true,
            Some(true) => has_pages && page.expected_seen >= expected,
            None => false,
        };
        let is_due = |page: &OpenPage| {
            let waited = now.duration_since(page.opened);
            page.is_up.is_some() && (is_whole(page) || waited >= PAGE_TIMEOUT)
        };
        let is_full = self.pages.len() > MAX_OPEN;
        let due = self.pages.iter().any(is_due) || is_full;
        if !due {
            // Samples without a scrape may belong to a later one.
            let is_lost = |page: &OpenPage| now.duration_since(page.opened) > OLDEST_IN_SCRAPE;
            while self.pages.front().is_some_and(|page| page.is_up.is_none() && is_lost(page)) {
                self.pages.pop_front();
            }
            return None;
        }
        let index = self.pages.iter().position(|page| page.is_up.is_some())?;
        let mut page = self.pages.remove(index)?;
        // An exporter that states instants of its own collected these before.
        for earlier in self.pages.drain(..index).rev() {
            if page.at.duration_since(earlier.at) <= OLDEST_IN_SCRAPE {
                page.values.extend(earlier.values);
            }
        }
        Some(self.render_page(&page))
    }

    fn render_page(&mut self, page: &OpenPage) -> ClosedPage {
        let is_up = page.is_up == Some(true);
        let mut values: Vec<Option<f64>> = vec![None; self.lines.len()];
        for (line, value) in &page.values {
            values[*line as usize].get_or_insert(*value);
        }
        let mut text = String::with_capacity(if is_up { page.values.len() * 160 } else { 0 });
        for line in self.order.iter().filter(|_| is_up) {
            let known = &mut self.lines[*line as usize];
            let value = values[*line as usize].filter(|value| !value.is_nan());
            known.is_expected = value.is_some();
            let Some(value) = value else { continue };
            text.push_str(&known.text);
            push_value(&mut text, value);
        }
        if is_up {
            self.closed.1 = self.closed.1.saturating_add(1);
            self.expected = self.lines.iter().filter(|line| line.is_expected).count() as u32;
            for open in &mut self.pages {
                let seen = open.values.iter();
                let seen = seen.filter(|(line, _)| self.lines[*line as usize].is_expected);
                open.expected_seen = seen.count() as u32;
            }
        }
        self.closed.0 = page.at;
        ClosedPage { at: page.at, is_up, seconds: page.seconds.filter(|it| *it >= 0.0), text }
    }

    /// Forgets lines without samples for a while, once in a while, and returns the keys of their series.
    pub(crate) fn drop_unused_lines(&mut self, now: UnixMs) -> Vec<K> {
        if now.duration_since(self.cleaned) < UNUSED {
            return Vec::new();
        }
        self.cleaned = now;
        let mut keys = Vec::new();
        let (lines, unused) = (&mut self.lines, &mut self.unused);
        self.order.retain(|number| {
            let line = &mut lines[*number as usize];
            let is_used = line.last == UnixMs(0) || now.duration_since(line.last) <= UNUSED;
            if !is_used {
                keys.append(&mut line.keys);
                line.text = Box::default();
                line.is_expected = false;
                unused.push(*number);
            }
            is_used
        });
        keys
    }

    /// The keys of all its series.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = K> {
        self.lines.into_iter().flat_map(|line| line.keys).chain(self.keys)
    }
}

/// Writes a value as exporters do.
fn push_value(text: &mut String, value: f64) {
    /// Whole numbers below are written without a fraction, which is faster.
    const EXACT: f64 = 1e15;
    // Writing to a string cannot fail.
    _ = if value.trunc().to_bits() == value.to_bits()
        && value.abs() < EXACT
        && !is_negative_zero(value)
    {
        writeln!(text, "{}", value as i64)
    } else if value == f64::INFINITY {
        writeln!(text, "+Inf")
    } else if value == f64::NEG_INFINITY {
        writeln!(text, "-Inf")
    } else {
        writeln!(text, "{value}")
    };
}

fn is_negative_zero(value: f64) -> bool {
    value.to_bits() == (-0.0_f64).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_exporters_do() {
        for (value, expected) in [
            (0.0, "0\n"),
            (-0.0, "-0\n"),
            (97.0, "97\n"),
            (-3.0, "-3\n"),
            (0.25, "0.25\n"),
            (1e15, "1000000000000000\n"),
            (1.844_674_407_370_955_2e19, "18446744073709552000\n"),
            (f64::INFINITY, "+Inf\n"),
            (f64::NEG_INFINITY, "-Inf\n"),
        ] {
            let mut text = String::new();
            push_value(&mut text, value);
            assert_eq!(text, expected);
        }
    }
}
