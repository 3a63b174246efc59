//! Page rings: precomputed pages for load tests with a fleet of any size.
//!
//! A few nodes are simulated for a few pages each. Every node of the fleet serves the pages of one of them in turn,
//! under its own name. Gauges differ from page to page. Counters are patched in place, with as many digits as they will
//! ever need, so that they keep growing when the ring starts again.

use std::time::Duration;

use framed_node::FramedNode;
use gaunt_schema::{
    Dialect, MetricId, Report, UnixMs,
    catalogue::{exporter, find_rows, gpu, host},
    text,
    unit::{CounterWidth, MetricKind, Unit},
};
use gaunt_sim::{NODES_PER_LEAF, Scenario, SimFleet};

mod extra_node_samples;
mod framed_node;
pub(crate) mod ring_server;

/// Number of simulated nodes; every other node copies one of them.
const SIMULATED: usize = 8;

/// Pages kept of each simulated node.
pub(crate) const FRAMES: usize = 4;
const FRAME: Duration = Duration::from_secs(10);

/// Samples of one page: those of a node with 8 GPUs and 8 ports.
const SAMPLES: usize = 960;

/// Counters have enough digits for this duration.
const LONGEST_S: f64 = 60.0 * 86_400.0;

/// Nodes that serve the same pages differ in their counters by this times their number.
const APART: u64 = 7_919;

/// Digits of a node's name.
const NAME_DIGITS: usize = 5;

/// How a patch in a page is filled.
#[derive(Clone, Copy, Debug)]
enum PatchKind {
    /// The digits of the node's name.
    Name,
    /// The digits of its leaf, and those of its job.
    Leaf,
    Job,
    /// Four hexadecimal digits that make the node's GPUs distinct.
    Gpu,
    /// A counter: its start value and its rate per second.
    Count {
        base: f64,
        slope: f64,
        number: FixedWidthNumber,
    },
    /// The timestamp of the node.
    Clock(FixedWidthNumber),
}

/// A number with a fixed number of digits, also after the point.
#[derive(Clone, Copy, Debug)]
struct FixedWidthNumber {
    digits: usize,
    decimals: usize,
}

/// Leaf names have four digits, and job names three after two constant ones.
const LEAF: FixedWidthNumber = FixedWidthNumber { digits: 4, decimals: 0 };
const JOB: FixedWidthNumber = FixedWidthNumber { digits: 3, decimals: 0 };

/// Nodes of one job.
const NODES_PER_JOB: usize = 128;

/// Interval, by the wall clock, at which another node loses its first GPU: the node whose number is that of the
/// interval. This measures how long an aggregator takes to report the loss.
const LOSS_EVERY: Duration = Duration::from_secs(5);

/// Number of intervals for which the GPU is lost.
const LOSS_SPANS: u64 = 6;

/// A position in a page, and how it is filled.
#[derive(Clone, Copy, Debug)]
struct PagePatch {
    at: usize,
    fill: PatchKind,
}

/// One page with its patches.
#[derive(Debug)]
struct PatchedPage {
    text: Vec<u8>,
    patches: Vec<PagePatch>,
    /// Position of the value that says whether the first GPU is present.
    present: Option<usize>,
}

/// The pages of a fleet.
#[derive(Debug)]
pub(crate) struct PageRings {
    /// The pages of each simulated node in order, each a whole HTTP response.
    pages: Vec<[PatchedPage; FRAMES]>,
    /// The same as frames.
    framed: Vec<FramedNode>,
    nodes: usize,
    /// The time from one page to the next.
    step: Duration,
    /// Whether GPUs are lost at intervals.
    loses_gpus: bool,
}

impl PageRings {
    /// Simulates a few nodes of this scenario and stores their pages; each page is served for `step`.
    pub(crate) fn of(scenario: Scenario, nodes: usize, seed: u64, step: Duration) -> Self {
        let start = UnixMs(1_790_000_000_000);
        let mut fleet = SimFleet::new(scenario, SIMULATED, seed, start);
        let mut node_reports: Vec<Vec<Report>> = vec![Vec::new(); SIMULATED];
        for frame in 0..FRAMES as u32 {
            let now = start + FRAME * (frame + 1);
            // Activity covers the last second, as in an exporter.
            fleet.advance_to(now - Duration::from_secs(1));
            fleet.advance_to(now);
            for (node, pages) in node_reports.iter_mut().enumerate() {
                let mut report = fleet.node_report(node);
                extra_node_samples::add_extra_samples(
                    &mut report,
                    u64::from(frame),
                    FRAME.as_secs_f64(),
                );
                pages.push(report);
            }
        }
        let (mut pages_of_nodes, mut framed) = (Vec::new(), Vec::new());
        for (node, reports) in node_reports.iter_mut().enumerate() {
            extra_node_samples::cut_samples(reports, SAMPLES);
            let name = fleet.node_name(node);
            let page = |report: &Report| {
                let mut page = String::new();
                text::write_text(report, &mut page);
                page
            };
            let pages: Vec<String> = reports.iter().map(page).collect();
            pages_of_nodes.push(build_ring(&pages, name));
            framed.push(FramedNode::of(reports, name));
        }
        let step = step.max(Duration::from_millis(1));
        Self { pages: pages_of_nodes, framed, nodes, step, loses_gpus: false }
    }

    /// The same, with another node losing its first GPU for half a minute every five seconds.
    pub(crate) fn with_gpu_loss(self, loses_gpus: bool) -> Self {
        Self { loses_gpus, ..self }
    }

    /// Whether the first GPU of a node is lost when the wall clock shows `now`.
    fn is_gpu_lost(&self, node: usize, now: UnixMs) -> bool {
        let span = now.0.unsigned_abs() / LOSS_EVERY.as_millis() as u64;
        let nodes = self.nodes as u64;
        let spans_since = (span % nodes + nodes - node as u64 % nodes) % nodes;
        self.loses_gpus && spans_since < LOSS_SPANS && nodes > LOSS_SPANS
    }

    /// Index of the page that a node serves `elapsed` after the start.
    fn page_index(&self, node: usize, elapsed: Duration) -> usize {
        let step_number = elapsed.as_millis() / self.step.as_millis();
        (step_number as usize + node / self.pages.len()) % FRAMES
    }

    /// The number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes
    }

    /// The name of a node.
    pub(crate) fn node_name(node: usize) -> String {
        format!("gpu{:0NAME_DIGITS$}", node + 1)
    }

    /// Replaces `out` by the response of a node `elapsed` after the start, when the wall clock shows `now`.
    pub(crate) fn write_answer(
        &self,
        node: usize,
        elapsed: Duration,
        now: UnixMs,
        out: &mut Vec<u8>,
    ) {
        let ring = &self.pages[node % self.pages.len()];
        let frame = &ring[self.page_index(node, elapsed)];
        out.clear();
        out.extend_from_slice(&frame.text);
        let seconds = elapsed.as_secs_f64();
        for patch in &frame.patches {
            let target = &mut out[patch.at..];
            match patch.fill {
                name @ (PatchKind::Name | PatchKind::Leaf | PatchKind::Job | PatchKind::Gpu) => {
                    name.write_name(node, target);
                }
                PatchKind::Count { base, slope, number } => {
                    number.write_digits(
                        (base + slope * seconds) as u64 + APART * node as u64,
                        target,
                    );
                }
                PatchKind::Clock(number) => number.write_digits(now.0.unsigned_abs(), target),
            }
        }
        if let Some(position) = frame.present.filter(|_| self.is_gpu_lost(node, now)) {
            out[position] = b'0';
        }
    }
}

/// The pages of one node as HTTP responses with patches.
fn build_ring(pages: &[String], name: &str) -> [PatchedPage; FRAMES] {
    let lines: Vec<Vec<&str>> = pages.iter().map(|page| page.lines().collect()).collect();
    let (first, last) = (&lines[0], &lines[FRAMES - 1]);
    let counts: Vec<Option<PatchKind>> =
        first.iter().zip(last).map(|(first, last)| line_patch(first, last)).collect();
    std::array::from_fn(|index| build_page(&lines[index], &counts, name))
}

/// How the value of a line changes over time, if it is a counter.
fn line_patch(first: &str, last: &str) -> Option<PatchKind> {
    let (metric, from) = parse_sample(first)?;
    let (_, to) = parse_sample(last)?;
    metric_patch(metric, from, to)
}

/// How a metric that was `from` on the first page and `to` on the last changes over time, if it does.
fn metric_patch(metric: MetricId, from: f64, to: f64) -> Option<PatchKind> {
    let unit = metric.catalogue_row().unit;
    // Seconds and joules have three decimals.
    let decimals = if matches!(unit, Unit::Seconds | Unit::Joules) { 3 } else { 0 };
    let scale = 10_f64.powi(decimals as i32);
    if [host::NODE_TIME, exporter::COLLECTOR_LAST_SUCCESS].contains(&metric) {
        return Some(PatchKind::Clock(FixedWidthNumber { digits: 10, decimals: 3 }));
    }
    let is_counter = metric.catalogue_row().kind == MetricKind::Counter(CounterWidth::Bits64);
    if !is_counter || to <= from {
        return None;
    }
    let span = FRAME.as_secs_f64() * (FRAMES - 1) as f64;
    let (base, slope) = (from * scale, (to - from) / span * scale);
    let max_value = base + slope * LONGEST_S + (APART * 100_000) as f64;
    let digits = (max_value.log10().floor() as usize + 1).saturating_sub(decimals).max(1);
    Some(PatchKind::Count { base, slope, number: FixedWidthNumber { digits, decimals } })
}

/// The metric and the value of a line, if it is a sample in gaunt's format.
fn parse_sample(line: &str) -> Option<(MetricId, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let name = series.split('{').next()?;
    let rows = find_rows(name).filter(|named| named.dialect == Dialect::Gaunt)?;
    (!line.starts_with('#')).then_some((rows.first, value.parse().ok()?))
}

/// One page with its header, counter values padded to full width, and the positions of all patches.
fn build_page(lines: &[&str], counts: &[Option<PatchKind>], name: &str) -> PatchedPage {
    let (mut body, mut patches) = (Vec::new(), Vec::new());
    let quoted = format!("\"{name}\"");
    for (line, count) in lines.iter().zip(counts) {
        let (series, value) = line.rsplit_once(' ').unwrap_or((line, ""));
        let series = series.replace(&quoted, &format!("\"gpu{:0NAME_DIGITS$}\"", 0));
        let series =
            series.replace("\"leaf-00-r", "\"leaf-0000-r").replace("\"48211\"", "\"48000\"");
        if !line.starts_with('#') {
            let from = body.len();
            let find_patches = |mark: &str, skip: usize, fill| {
                series
                    .match_indices(mark)
                    .map(move |(offset, _)| PagePatch { at: from + offset + skip, fill })
                    .collect::<Vec<_>>()
            };
            patches.extend(find_patches("=\"gpu00000\"", "=\"gpu".len(), PatchKind::Name));
            patches.extend(find_patches("=\"leaf-0000-r", "=\"leaf-".len(), PatchKind::Leaf));
            patches.extend(find_patches("=\"48000\"", "=\"48".len(), PatchKind::Job));
            patches.extend(find_patches("GPU-51a0", "GPU-51a0".len(), PatchKind::Gpu));
        }
        body.extend_from_slice(series.as_bytes());
        body.push(b' ');
        match count {
            Some(fill) => {
                patches.push(PagePatch { at: body.len(), fill: *fill });
                body.resize(body.len() + fill.text_width(), b'0');
            }
            None => body.extend_from_slice(value.as_bytes()),
        }
        body.push(b'\n');
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
        text::CONTENT_TYPE,
        body.len()
    );
    for patch in &mut patches {
        patch.at += head.len();
    }
    let text = [head.into_bytes(), body].concat();
    let mark = format!("\n{}{{gpu=\"0\"}} 1\n", gpu::PRESENT.catalogue_row().name);
    let present = text.windows(mark.len()).position(|part| part == mark.as_bytes());
    let present = present.map(|start| start + mark.len() - "1\n".len());
    PatchedPage { text, patches, present }
}

impl PatchKind {
    /// Writes the parts that identify the node and do not depend on time.
    fn write_name(self, node: usize, target: &mut [u8]) {
        match self {
            Self::Name => {
                FixedWidthNumber { digits: NAME_DIGITS, decimals: 0 }
                    .write_digits(node as u64 + 1, target);
            }
            Self::Leaf => LEAF.write_digits((node / NODES_PER_LEAF) as u64, target),
            Self::Job => JOB.write_digits((node / NODES_PER_JOB) as u64, target),
            Self::Gpu => write_hex(node, target),
            Self::Count { .. } | Self::Clock(_) => {}
        }
    }

    fn text_width(self) -> usize {
        match self {
            Self::Name => NAME_DIGITS,
            Self::Gpu => 4,
            Self::Leaf => LEAF.digits,
            Self::Job => JOB.digits,
            Self::Count { number, .. } | Self::Clock(number) => {
                number.digits + number.decimals + usize::from(number.decimals > 0)
            }
        }
    }
}

impl FixedWidthNumber {
    /// Writes a value with leading zeros.
    fn write_digits(self, mut value: u64, target: &mut [u8]) {
        let mut position = self.digits + self.decimals + usize::from(self.decimals > 0);
        for digit in 0..self.digits + self.decimals {
            position -= 1;
            if self.decimals > 0 && digit == self.decimals {
                target[position] = b'.';
                position -= 1;
            }
            target[position] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    }
}

fn write_hex(node: usize, target: &mut [u8]) {
    for (index, digit) in target.iter_mut().take(4).enumerate() {
        *digit = b"0123456789abcdef"[node >> (4 * (3 - index)) & 15];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use gaunt_schema::{Device, Reading, ScrapedPage};

    use super::*;

    fn healthy_rings(nodes: usize) -> PageRings {
        PageRings::of(Scenario::from_name("healthy").unwrap(), nodes, 1, FRAME)
    }

    fn read_page(rings: &PageRings, node: usize, seconds: u64) -> ScrapedPage {
        let mut answer = Vec::new();
        let elapsed = Duration::from_secs(seconds);
        rings.write_answer(node, elapsed, UnixMs(1_800_000_000_123) + elapsed, &mut answer);
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let (head, body) = answer.split_at(end);
        assert!(head.ends_with(format!("content-length: {}\r\n\r\n", body.len()).as_bytes()));
        let page = text::decode_page(body, &text::PageLimits::default()).unwrap();
        assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
        page
    }

    fn readings_by_series(page: &ScrapedPage) -> HashMap<(MetricId, &Device), Reading> {
        let device =
            |sample: &gaunt_schema::MetricSample| &page.report.devices[sample.device as usize];
        page.report
            .samples
            .iter()
            .map(|sample| ((sample.metric, device(sample)), sample.reading))
            .collect()
    }

    #[test]
    fn ring_values_change_and_counters_never_fall() {
        let rings = healthy_rings(12_500);
        let mut last = read_page(&rings, 7_003, 0);
        assert_eq!(last.report.node.as_deref(), Some("gpu07004"));
        for round in 1..=3 * FRAMES as u64 {
            let now = read_page(&rings, 7_003, 10 * round);
            let (before, after) = (readings_by_series(&last), readings_by_series(&now));
            assert_eq!((before.len(), after.len()), (SAMPLES, SAMPLES));
            let changed = after.iter().filter(|(key, value)| before[*key] != **value).count();
            let share = changed as f64 / after.len() as f64;
            assert!(share >= 0.6, "round {round}: {changed} of {} changed", after.len());
            #[expect(clippy::iter_over_hash_type, reason = "each series is checked for itself")]
            for ((metric, device), value) in &after {
                let falls = before[&(*metric, *device)].value() > value.value();
                let counts = matches!(
                    metric.catalogue_row().kind,
                    MetricKind::Counter(CounterWidth::Bits64)
                );
                assert!(!(counts && falls), "{} of {device:?} fell", metric.series_key());
            }
            assert_eq!(
                now.report.node_time.unwrap().duration_since(last.report.node_time.unwrap()),
                FRAME
            );
            last = now;
        }
    }

    #[test]
    fn nodes_differ_in_name_boards_and_counters() {
        let rings = healthy_rings(20_000);
        let (first, same_page) = (read_page(&rings, 3, 5), read_page(&rings, 3 + 8 * FRAMES, 5));
        assert_ne!(first.report.node, same_page.report.node);
        assert_ne!(first.report.infos, same_page.report.infos);
        assert_ne!(readings_by_series(&first), readings_by_series(&same_page));
    }

    #[test]
    fn numbers_keep_their_width() {
        let write_number = |digits, decimals, value| {
            let mut target = *b"xxxxxxxx";
            FixedWidthNumber { digits, decimals }.write_digits(value, &mut target);
            String::from_utf8(target.to_vec()).unwrap()
        };
        assert_eq!(write_number(5, 0, 42), "00042xxx");
        assert_eq!(write_number(3, 3, 1_234), "001.234x");
        assert_eq!(write_number(2, 3, 0), "00.000xx");
    }
}
