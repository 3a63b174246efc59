//! Targets of a server: the series `up` has one for each, with exactly the labels that it adds to their pages.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use foldhash::fast::RandomState;
use gaunt_schema::{SanitizedText, ScrapeTarget, TargetId, UnixMs, text::TemplateState};
use gaunt_scrape::MAX_TARGETS;
use hashbrown::{Equivalent, HashMap};

use crate::query_answer::AnsweredLabels;

/// The label of a page that the target has too: Prometheus keeps the page's value under this prefix.
const RENAMED: &str = "exported_";

/// The labels of a target that name its node: gaunt's own, and those by which Kubernetes' example configuration and
/// OpenTelemetry name the node of a pod.
const NODE_LABELS: [&str; 3] = ["node", "kubernetes_node", "k8s_node_name"];

/// A target without a sample of `up` for this long is no longer a target, as in Prometheus.
const GONE_AFTER: Duration = Duration::from_mins(5);

/// A target of the server.
#[derive(Debug)]
pub(crate) struct SeriesTarget {
    /// Its labels, without those that tell replicas of the server apart.
    labels: Vec<(Box<str>, Box<str>)>,
    /// What its last page looked like, so that the next one is decoded faster.
    pub(crate) template: TemplateState,
    /// The instant of its last page that was delivered.
    pub(crate) delivered: UnixMs,
    /// Its series that change rarely; none before they were asked for.
    pub(crate) rare: Option<RareSeries>,
    last_up: UnixMs,
}

/// The series of a target that change rarely, as they were when the server was last asked for them.
#[derive(Debug)]
pub(crate) struct RareSeries {
    /// The end of the window in which they were asked for.
    pub(crate) asked: UnixMs,
    /// Which other series the target had then: with another set of devices or labels they are asked for again.
    pub(crate) beside: u64,
    /// The series as on the page, with the text of the last value.
    pub(crate) lines: Vec<(Box<str>, Box<str>)>,
}

impl SeriesTarget {
    fn find_label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| **label == *name);
        found.map(|(_, value)| &**value)
    }

    fn label_or_empty(&self, name: &str) -> &str {
        self.find_label(name).unwrap_or_default()
    }

    /// The name of its node, as the server's configuration names it.
    fn node_name(&self) -> Option<&str> {
        let mut names = NODE_LABELS.iter().filter_map(|label| self.find_label(label));
        names.find(|name| !name.is_empty())
    }

    /// How many of its labels a series contradicts. The page's own value may replace a label.
    fn count_mismatches(&self, labels: &AnsweredLabels<'_>) -> usize {
        self.labels.iter().filter(|(name, value)| labels.find_label(name) != &**value).count()
    }

    /// The series as it was on the page, up to its value: without the labels that the server added, and with those that
    /// it renamed.
    pub(crate) fn page_series(&self, series: &AnsweredLabels<'_>) -> Option<String> {
        let name = series.metric_name();
        let mut labels: Vec<(&str, bool, &str)> = Vec::with_capacity(series.0.len());
        for (label, value) in &series.0 {
            if label == "__name__" || is_replica_label(label) {
                continue;
            }
            let own_name = label.strip_prefix(RENAMED).filter(|own| self.find_label(own).is_some());
            match (own_name, self.find_label(label)) {
                (Some(own_name), _) => labels.push((own_name, false, value)),
                (None, Some(added)) if added == value => {}
                _ => labels.push((label, true, value)),
            }
        }
        if !is_name(name) || !labels.iter().all(|(label, ..)| is_name(label)) {
            return None;
        }
        // The page's own value comes first, and the server's is dropped.
        labels.sort_unstable();
        labels.dedup_by_key(|(label, ..)| *label);
        let mut text = name.to_owned();
        for (index, (label, _, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            text.push_str(label);
            text.push_str("=\"");
            push_escaped(&mut text, value);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        text.push(' ');
        Some(text)
    }
}

/// A label that tells the members of a pair of servers apart: both have the same targets.
fn is_replica_label(name: &str) -> bool {
    name.ends_with("replica") || name.ends_with("replica__")
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':'))
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}

fn push_escaped(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            character => text.push(character),
        }
    }
}

/// Job and instance, to find a target without a copy of them.
#[derive(Hash)]
struct JobInstance<'a>(&'a str, &'a str);

impl Equivalent<(Box<str>, Box<str>)> for JobInstance<'_> {
    fn equivalent(&self, key: &(Box<str>, Box<str>)) -> bool {
        *self.0 == *key.0 && *self.1 == *key.1
    }
}

/// Numbers of targets by a key.
type TargetIndex<K> = HashMap<K, Vec<u32>, RandomState>;

/// All targets of a server.
#[derive(Debug, Default)]
pub(crate) struct SeriesTargets {
    targets: BTreeMap<u32, SeriesTarget>,
    next: u32,
    by_job_instance: TargetIndex<(Box<str>, Box<str>)>,
    by_instance: TargetIndex<Box<str>>,
    /// Jobs with series that gaunt reads; the others scrape something else.
    read_jobs: HashSet<Box<str>>,
    /// Counts changes of the announced targets.
    revision: u64,
}

impl SeriesTargets {
    /// The number of the target of a series of `up`, added if it is new, and the instant of its last page; none beyond
    /// the limit of targets.
    pub(crate) fn ensure_target(
        &mut self,
        up: &AnsweredLabels<'_>,
        at: UnixMs,
    ) -> Option<(u32, UnixMs)> {
        let mut labels: Vec<(Box<str>, Box<str>)> =
            up.0.iter()
                .filter(|(name, _)| name != "__name__" && !is_replica_label(name))
                .map(|(name, value)| ((&**name).into(), (&**value).into()))
                .collect();
        labels.sort_unstable();
        let key = (up.find_label("job").into(), up.find_label("instance").into());
        let known = self.by_job_instance.get(&key).into_iter().flatten();
        let known = known.copied().find(|id| self.targets[id].labels == labels);
        if let Some(id) = known
            && let Some(target) = self.targets.get_mut(&id)
        {
            target.last_up = target.last_up.max(at);
            return Some((id, target.delivered));
        }
        if self.targets.len() >= MAX_TARGETS {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.revision += 1;
        let (template, delivered) = (TemplateState::default(), UnixMs(0));
        let target = SeriesTarget { labels, template, delivered, rare: None, last_up: at };
        self.targets.insert(id, target);
        self.by_instance.entry(key.1.clone()).or_default().push(id);
        self.by_job_instance.entry(key).or_default().push(id);
        Some((id, UnixMs(0)))
    }

    /// Notes that a target was scraped at this instant.
    pub(crate) fn mark_scraped(&mut self, id: u32, at: UnixMs) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.last_up = target.last_up.max(at);
        }
    }

    /// The number of the target that a series comes from. A page may replace the label `job` of its series.
    pub(crate) fn find_target(&self, series: &AnsweredLabels<'_>) -> Option<u32> {
        let instance = series.find_label("instance");
        let key = JobInstance(series.find_label("job"), instance);
        let candidates =
            self.by_job_instance.get(&key).or_else(|| self.by_instance.get(instance))?;
        match candidates.as_slice() {
            [only] => Some(*only),
            several => {
                several.iter().copied().min_by_key(|id| self.targets[id].count_mismatches(series))
            }
        }
    }

    /// Changes with the announced targets.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the server has scraped nothing lately.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The target of a number.
    pub(crate) fn target_mut(&mut self, id: u32) -> Option<&mut SeriesTarget> {
        self.targets.get_mut(&id)
    }

    /// The target of a number.
    pub(crate) fn target(&self, id: u32) -> Option<&SeriesTarget> {
        self.targets.get(&id)
    }

    /// Notes that the job of a target has series that gaunt reads: all its targets are announced.
    pub(crate) fn mark_read(&mut self, id: u32) {
        let Some(target) = self.targets.get(&id) else { return };
        let job = target.label_or_empty("job");
        if !self.read_jobs.contains(job) {
            self.read_jobs.insert(job.into());
            self.revision += 1;
        }
    }

    /// Whether a target is announced.
    pub(crate) fn is_read(&self, id: u32) -> bool {
        let target = self.targets.get(&id);
        target.is_some_and(|target| self.read_jobs.contains(target.label_or_empty("job")))
    }

    /// Forgets targets that the server has not scraped for a while.
    pub(crate) fn forget_gone(&mut self, now: UnixMs) {
        let is_gone = |target: &SeriesTarget| now.duration_since(target.last_up) > GONE_AFTER;
        if !self.targets.values().any(is_gone) {
            return;
        }
        self.targets.retain(|_, target| !is_gone(target));
        self.revision += 1;
        let targets = &self.targets;
        let keep = |ids: &mut Vec<u32>| {
            ids.retain(|id| targets.contains_key(id));
            !ids.is_empty()
        };
        self.by_job_instance.retain(|_, ids| keep(ids));
        self.by_instance.retain(|_, ids| keep(ids));
    }

    /// The instance of a target.
    pub(crate) fn instance(&self, id: u32) -> &str {
        self.targets.get(&id).map_or("", |target| target.label_or_empty("instance"))
    }

    /// The instances of all targets, or of those of jobs that are read, each once.
    pub(crate) fn list_instances(&self, is_all: bool) -> Vec<Box<str>> {
        let read = self
            .targets
            .values()
            .filter(|target| is_all || self.read_jobs.contains(target.label_or_empty("job")));
        let mut instances: Vec<Box<str>> =
            read.map(|target| target.label_or_empty("instance").into()).collect();
        instances.sort_unstable();
        instances.dedup();
        instances
    }

    /// The announced targets, for the engine.
    pub(crate) fn announced_targets(&self, origin: &SanitizedText) -> Vec<ScrapeTarget> {
        let read = self.targets.iter().filter(|(id, _)| self.is_read(**id));
        let announced = read.map(|(id, target)| ScrapeTarget {
            id: TargetId(*id),
            address: SanitizedText::new(target.label_or_empty("instance")),
            node: target.node_name().map(SanitizedText::new),
            origin: origin.clone(),
        });
        announced.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn labels(pairs: &[(&'static str, &'static str)]) -> AnsweredLabels<'static> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (Cow::Borrowed(*name), Cow::Borrowed(*value))
        };
        AnsweredLabels(pairs.iter().map(pair).collect())
    }

    const AT: UnixMs = UnixMs(1_000);

    #[test]
    fn series_is_written_as_it_was_on_the_page() {
        let mut targets = SeriesTargets::default();
        let up = labels(&[
            ("__name__", "up"),
            ("job", "dcgm"),
            ("instance", "10.0.0.7:9400"),
            ("namespace", "gpu-operator"),
            ("pod", "dcgm-exporter-x"),
            ("cluster", "hall-1"),
            ("prometheus_replica", "a"),
        ]);
        let id = targets.ensure_target(&up, AT).unwrap().0;
        let series = labels(&[
            ("__name__", "DCGM_FI_DEV_GPU_UTIL"),
            ("gpu", "0"),
            ("modelName", "a\"b\\c\nd"),
            ("job", "dcgm"),
            ("instance", "10.0.0.7:9400"),
            ("namespace", "gpu-operator"),
            ("pod", "dcgm-exporter-x"),
            ("exported_namespace", "research"),
            ("exported_pod", "train-0"),
            ("exported_user", "kept"),
            ("cluster", "hall-1"),
            ("prometheus_replica", "b"),
        ]);
        assert_eq!(targets.find_target(&series), Some(id));
        assert_eq!(
            targets.target(id).unwrap().page_series(&series).unwrap(),
            "DCGM_FI_DEV_GPU_UTIL{exported_user=\"kept\",gpu=\"0\",modelName=\"a\\\"b\\\\c\\nd\",\
             namespace=\"research\",pod=\"train-0\"} "
        );
        let other_replica = labels(&[
            ("prometheus_replica", "b"),
            ("job", "dcgm"),
            ("instance", "10.0.0.7:9400"),
            ("namespace", "gpu-operator"),
            ("pod", "dcgm-exporter-x"),
            ("cluster", "hall-1"),
        ]);
        assert_eq!(
            targets.ensure_target(&other_replica, AT).unwrap().0,
            id,
            "a pair has one target"
        );
        let strange = labels(&[("__name__", "up"), ("a b", "c")]);
        assert_eq!(targets.target(id).unwrap().page_series(&strange), None);
    }

    #[test]
    fn series_finds_its_target_where_names_are_ambiguous() {
        let mut targets = SeriesTargets::default();
        let up =
            |job, cluster| labels(&[("job", job), ("instance", "gpu1:9100"), ("cluster", cluster)]);
        let first = targets.ensure_target(&up("node", "a"), AT).unwrap().0;
        let second = targets.ensure_target(&up("node", "b"), AT).unwrap().0;
        assert_ne!(first, second);
        assert_eq!(targets.find_target(&up("node", "b")), Some(second));
        // With honor_labels the page's own job replaces that of the target.
        let own_job = labels(&[
            ("__name__", "port_rate"),
            ("job", "8812"),
            ("instance", "gpu1:9100"),
            ("cluster", "b"),
        ]);
        assert_eq!(targets.find_target(&own_job), Some(second));
        let page = targets.target(second).unwrap().page_series(&own_job).unwrap();
        assert_eq!(page, "port_rate{job=\"8812\"} ");
        assert_eq!(targets.find_target(&labels(&[("instance", "other")])), None);
    }

    #[test]
    fn targets_of_unread_jobs_and_gone_ones_are_not_announced() {
        let mut targets = SeriesTargets::default();
        let up = |job, instance| labels(&[("job", job), ("instance", instance), ("node", "n1")]);
        let read = targets.ensure_target(&up("dcgm", "a:9400"), AT).unwrap().0;
        let down = targets.ensure_target(&up("dcgm", "b:9400"), AT + GONE_AFTER).unwrap().0;
        let other = targets.ensure_target(&up("api", "c:443"), AT).unwrap().0;
        assert_eq!(targets.list_instances(true).len(), 3);
        targets.mark_read(read);
        assert_eq!(targets.list_instances(false), ["a:9400".into(), "b:9400".into()]);
        let announced = targets.announced_targets(&"here".into());
        let ids: Vec<_> = announced.iter().map(|target| target.id.0).collect();
        assert_eq!(ids, [read, down], "{other} is of another job");
        assert_eq!(announced[0].node.as_deref(), Some("n1"));
        targets.forget_gone(AT + GONE_AFTER * 2);
        assert_eq!(targets.announced_targets(&"here".into()).len(), 1);
        assert_eq!(targets.find_target(&up("dcgm", "a:9400")), None);
        let again = targets.ensure_target(&up("dcgm", "a:9400"), AT + GONE_AFTER * 2).unwrap().0;
        assert_ne!(again, read, "what comes back may be another machine");
    }

    #[test]
    fn node_of_a_pod_is_the_one_that_its_target_names() {
        let mut targets = SeriesTargets::default();
        let pod = [("job", "pods"), ("instance", "10.244.1.7:9400"), ("node", "")];
        let up = labels(&[pod.as_slice(), &[("kubernetes_node", "gpu-0412")]].concat());
        let id = targets.ensure_target(&up, AT).unwrap().0;
        targets.mark_read(id);
        let announced = targets.announced_targets(&"here".into());
        assert_eq!(announced[0].node.as_deref(), Some("gpu-0412"));
    }
}
