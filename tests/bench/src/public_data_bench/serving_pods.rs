//! Pods of an image-generation service (Alibaba's cluster-trace-v2026-GenAI): GPU utilization and memory of one GPU each
//! become the pages that dcgm-exporter would have served.
//!
//! The tables name neither node nor device. Each pod is a node with one GPU, and all are of one Deployment. They have no
//! power either, which dcgm-exporter serves by default: the pages are played without it, and with one that follows
//! utilization.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, ensure};
use gaunt_schema::UnixMs;

use super::{
    csv_rows::{RowCounts, read_rows},
    modelled_gpu::KernelShares,
    page_player::PublicPages,
};

/// The tables, as their archives name them.
const UTILIZATION_TABLE: &str = "pod_gpu_duty_cycle_anon.csv";
const MEMORY_TABLE: &str = "pod_gpu_memory_used_bytes_anon.csv";

/// The columns of both tables.
const COLUMNS: [&str; 3] = ["timestamp_anon", "value", "container_ip"];

/// The most pods.
const MAX_PODS: usize = 4_096;

/// A pod without samples for this many periods is gone: its service discovery names it no longer.
const GONE_PERIODS: i64 = 10;

/// The names of a Deployment's pods end with a template hash and five characters of this alphabet, which has no vowels.
const POD_NAME_START: &str = "image-serving-6b5d4f7c9d";
const POD_LETTERS: &[u8; 16] = b"bcdfghjklmnpqrst";

/// One sample of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PodSample {
    /// Per cent.
    utilization: Option<f64>,
    memory_bytes: Option<f64>,
}

/// One pod with its samples, by Unix second.
#[derive(Debug)]
struct ServingPod {
    /// The labels of its series.
    labels: String,
    samples: BTreeMap<i64, PodSample>,
    /// First and last second of each time for which it is there.
    spans: Vec<(i64, i64)>,
}

/// All pods of the tables.
#[derive(Debug)]
pub(super) struct ServingPods {
    pods: Vec<ServingPod>,
    /// Rows of both tables.
    pub(super) rows: RowCounts,
    period_s: i64,
    /// The pods that the last list of targets named, once there was one.
    listed: Option<Vec<u32>>,
    /// Joules of each pod, if its power follows utilization.
    energy_j: Option<Vec<f64>>,
}

impl ServingPods {
    /// Reads the tables of a folder.
    pub(super) fn read_folder(folder: &Path) -> anyhow::Result<Self> {
        let mut samples: BTreeMap<String, BTreeMap<i64, PodSample>> = BTreeMap::new();
        let mut rows = RowCounts::default();
        for (table, is_memory) in [(UTILIZATION_TABLE, false), (MEMORY_TABLE, true)] {
            let path = folder.join(table);
            let archive = table.replace(".csv", ".tar.gz");
            let hint = || format!("unpack its archive in the same folder: tar xzf {archive}");
            let counts = read_rows(&path, COLUMNS, |[second, value, container]| {
                let second = whole_second(second)?;
                let value: f64 = value.parse().ok().filter(|value: &f64| *value >= 0.0)?;
                let is_hash =
                    container.len() == 32 && container.bytes().all(|byte| byte.is_ascii_hexdigit());
                if !is_hash || (samples.len() >= MAX_PODS && !samples.contains_key(container)) {
                    return None;
                }
                let pod = samples.entry(container.to_owned()).or_default();
                let sample = pod.entry(second).or_default();
                let own =
                    if is_memory { &mut sample.memory_bytes } else { &mut sample.utilization };
                *own = Some(value);
                Some(())
            });
            rows.add(counts.with_context(hint)?);
        }
        let period_s = sample_period(samples.values().map(|pod| pod.keys().copied().collect()))
            .with_context(|| format!("no pod of {} has two samples", folder.display()))?;
        let pods = samples.into_iter().enumerate();
        let pods = pods.map(|(index, (hash, samples))| ServingPod {
            labels: pod_labels(index, &hash),
            spans: find_spans(samples.keys().copied(), period_s * GONE_PERIODS),
            samples,
        });
        let pods: Vec<ServingPod> = pods.collect();
        ensure!(!pods.is_empty(), "{} has no pods", folder.display());
        Ok(Self { pods, rows, period_s, listed: None, energy_j: None })
    }

    /// Begins again, with a power that follows utilization.
    pub(super) fn with_power(self) -> Self {
        let energy_j = Some(vec![0.0; self.pods.len()]);
        Self { energy_j, listed: None, ..self }
    }

    /// Pods times the time for which they are there, in days.
    pub(super) fn gpu_days(&self) -> f64 {
        let spans = self.pods.iter().flat_map(|pod| &pod.spans);
        spans.map(|(first, last)| (last - first + self.period_s) as f64 / 86_400.0).sum()
    }
}

impl PublicPages for ServingPods {
    fn time_span(&self) -> (UnixMs, UnixMs) {
        let spans = || self.pods.iter().flat_map(|pod| &pod.spans);
        let first = spans().map(|(first, _)| *first).min().unwrap_or_default();
        let last = spans().map(|(_, last)| *last).max().unwrap_or_default();
        (UnixMs(first * 1_000), UnixMs(last * 1_000))
    }

    fn scrape_period(&self) -> Duration {
        Duration::from_secs(self.period_s as u64)
    }

    fn changed_targets(&mut self, at: UnixMs) -> Option<Vec<(u32, String)>> {
        let second = at.0 / 1_000;
        let is_there = |pod: &ServingPod| {
            pod.spans.iter().any(|(first, last)| (*first..=*last).contains(&second))
        };
        let pods = self.pods.iter().enumerate().filter(|(_, pod)| is_there(pod));
        let there: Vec<u32> = pods.map(|(index, _)| index as u32).collect();
        if self.listed.as_ref() == Some(&there) {
            return None;
        }
        let targets = there.iter().map(|index| (*index, pod_address(*index as usize))).collect();
        self.listed = Some(there);
        Some(targets)
    }

    fn take_pages(&mut self, at: UnixMs) -> Vec<(u32, String)> {
        let second = at.0 / 1_000;
        let period_s = self.period_s as f64;
        let mut energies = self.energy_j.as_mut().map(|energies| energies.iter_mut());
        let pods = self.pods.iter().enumerate();
        let pages = pods.filter_map(|(index, pod)| {
            let energy_j = energies.as_mut().and_then(Iterator::next);
            let sample = pod.samples.get(&second)?;
            let mut page = sample.render_page(&pod.labels);
            if let Some(energy_j) = energy_j {
                let busy = sample.utilization.unwrap_or_default() / 100.0;
                let shares = KernelShares { computing: busy, busy };
                *energy_j += shares.power_w() * period_s;
                page += &shares.render_power(&pod.labels, *energy_j);
            }
            Some((index as u32, page))
        });
        pages.collect()
    }
}

impl PodSample {
    fn render_page(&self, labels: &str) -> String {
        let utilization = self
            .utilization
            .map(|per_cent| format!("DCGM_FI_DEV_GPU_UTIL{{{labels}}} {per_cent:.0}\n"));
        let memory = self.memory_bytes.map(|bytes| {
            format!("DCGM_FI_DEV_FB_USED{{{labels}}} {:.0}\n", bytes / f64::from(1 << 20))
        });
        [utilization, memory].into_iter().flatten().collect()
    }
}

/// A time that is a whole number of seconds, as the tables write it: `1662858720.0`.
fn whole_second(text: &str) -> Option<i64> {
    let second: f64 = text.parse().ok()?;
    (second > 0.0 && second < 1e11 && second.fract() == 0.0).then_some(second as i64)
}

/// The most frequent time between two samples of a pod.
fn sample_period(pods: impl Iterator<Item = Vec<i64>>) -> Option<i64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for seconds in pods {
        for pair in seconds.windows(2) {
            *counts.entry(pair[1] - pair[0]).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(period, count)| (*count, -period)).map(|(period, _)| period)
}

/// The times between gaps that are longer than this.
fn find_spans(seconds: impl Iterator<Item = i64>, longest_gap: i64) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for second in seconds {
        match spans.last_mut() {
            Some((_, last)) if second - *last <= longest_gap => *last = second,
            _ => spans.push((second, second)),
        }
    }
    spans
}

/// The labels that dcgm-exporter adds in Kubernetes. The hash of a container has as many digits as a UUID.
fn pod_labels(index: usize, hash: &str) -> String {
    let digits = hash.bytes().filter_map(|byte| char::from(byte).to_digit(16));
    let suffix: String =
        digits.take(5).map(|digit| char::from(POD_LETTERS[digit as usize])).collect();
    let uuid = [&hash[..8], &hash[8..12], &hash[12..16], &hash[16..20], &hash[20..]].join("-");
    format!(
        "gpu=\"0\",UUID=\"GPU-{uuid}\",device=\"nvidia0\",Hostname=\"node{index:04}\",namespace=\"serving\",pod=\"{POD_NAME_START}-{suffix}\",container=\"main\""
    )
}

fn pod_address(index: usize) -> String {
    format!("10.0.{}.{}:9400", index / 250, index % 250 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_data_bench::page_player::play_public_pages;

    /// Two pods a minute apart in samples: one for half an hour, the other one with a gap in which it is gone.
    fn write_tables(folder: &Path) {
        let [a, b] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
        let mut utilization = vec!["value,timestamp_anon,container_ip".to_owned()];
        let mut memory = vec!["timestamp_anon,value,container_ip".to_owned()];
        for minute in 0..30 {
            let second = 1_662_858_720 + minute * 60;
            utilization.push(format!("{}.6666,{second}.0,{a}", 40 + minute % 3));
            memory.push(format!("{second}.0,33879490560.0,{a}"));
            if !(5..20).contains(&minute) {
                utilization.push(format!("0.0,{second}.0,{b}"));
            }
        }
        utilization.push("NULL,1662858720.0,0123".to_owned());
        utilization.push("0.5,x,fedcba9876543210fedcba9876543210".to_owned());
        let [utilization, memory] = [utilization.join("\n"), memory.join("\n")];
        std::fs::write(folder.join(UTILIZATION_TABLE), utilization).unwrap();
        std::fs::write(folder.join(MEMORY_TABLE), memory).unwrap();
    }

    #[test]
    fn tables_become_pages_of_pods_while_these_are_there() {
        let folder = tempfile::tempdir().unwrap();
        write_tables(folder.path());
        let mut pods = ServingPods::read_folder(folder.path()).unwrap();
        assert_eq!(pods.rows, RowCounts { read: 75, rejected: 2 });
        assert_eq!(pods.scrape_period(), Duration::from_mins(1));
        assert!((pods.gpu_days() - 45.0 * 60.0 / 86_400.0).abs() < 1e-9, "{}", pods.gpu_days());
        let (from, until) = pods.time_span();
        assert_eq!((from.0, until.duration_since(from).as_secs()), (1_662_858_720_000, 29 * 60));
        let names = |targets: Option<Vec<(u32, String)>>| {
            targets.map(|targets| targets.into_iter().map(|(id, _)| id).collect::<Vec<_>>())
        };
        let after = |seconds| from + Duration::from_secs(seconds);
        assert_eq!(names(pods.changed_targets(from)), Some(vec![0, 1]));
        assert_eq!(names(pods.changed_targets(after(60))), None);
        assert_eq!(names(pods.changed_targets(after(300))), Some(vec![0]));
        assert_eq!(names(pods.changed_targets(after(1_200))), Some(vec![0, 1]));
        let pages = pods.take_pages(from);
        let [(0, first), (1, second)] = pages.as_slice() else { panic!("{pages:?}") };
        let labels = "gpu=\"0\",UUID=\"GPU-01234567-89ab-cdef-0123-456789abcdef\",device=\"nvidia0\",Hostname=\"node0000\",namespace=\"serving\",pod=\"image-serving-6b5d4f7c9d-bcdfg\",container=\"main\"";
        let expected =
            format!("DCGM_FI_DEV_GPU_UTIL{{{labels}}} 41\nDCGM_FI_DEV_FB_USED{{{labels}}} 32310\n");
        assert_eq!(*first, expected);
        // The memory of the other one is not known: it is left out.
        assert!(second.lines().count() == 1 && second.ends_with(" 0\n"), "{second}");
        assert!(pods.take_pages(after(1)).is_empty());
    }

    #[test]
    fn pods_are_judged_without_a_rejected_line() {
        let folder = tempfile::tempdir().unwrap();
        write_tables(folder.path());
        let mut pods = ServingPods::read_folder(folder.path()).unwrap();
        let run = play_public_pages(&mut pods);
        assert_eq!((run.pages, run.rejected_lines), (45, 0));
        // A pod that is gone is no target: nothing is down.
        assert!(run.episodes.iter().all(|episode| episode.paged.is_none()), "{:?}", run.episodes);
        let mut pods = pods.with_power();
        let (from, _) = pods.time_span();
        let page = pods.take_pages(from).remove(0).1;
        let power = page.lines().find(|line| line.starts_with("DCGM_FI_DEV_POWER_USAGE"));
        // 80 W, and 420 W for 40.6666 % of the time.
        assert!(power.is_some_and(|line| line.ends_with(" 250.800")), "{page}");
        let run = play_public_pages(&mut pods);
        assert_eq!((run.episodes.len(), run.rejected_lines), (0, 0), "{:?}", run.episodes);
    }

    #[test]
    fn missing_table_is_named_with_its_archive() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", ServingPods::read_folder(folder.path()).unwrap_err());
        assert!(error.contains("tar xzf pod_gpu_duty_cycle_anon.tar.gz"), "{error}");
    }
}
