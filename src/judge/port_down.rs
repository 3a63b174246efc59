//! Ports that are down: that were active before, or whose siblings on the node say that they should be.

use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
    fmt::Write,
};

use gaunt_schema::{
    Class, Entity, FindingKind, GpuState, Safe, Severity, UnixMs, catalogue::port, unit::Unit,
};

use super::{
    Evidence, Finding, Judge, Thresholds,
    finding::{MAX_VICTIMS, count, time_of_day},
    life::Seen,
};
use crate::cluster::{Cluster, Entry, Node};

/// The logical state of an active port.
const ACTIVE: f64 = 4.0;

/// The physical state of a port whose link is up.
const LINK_UP: f64 = 5.0;

/// The physical state of a port that somebody switched off; over Ethernet also that of one without a carrier.
const DISABLED: f64 = 3.0;

/// What is remembered of each port, by row.
#[derive(Debug, Default)]
pub(super) struct Ports {
    ports: Vec<Option<Port>>,
}

#[derive(Clone, Debug)]
struct Port {
    /// The node that it is on: a row may be given to another.
    node: Safe,
    looked: UnixMs,
    was_active: bool,
    /// `link_downed` and the rate when it was last active.
    downed_before: Option<f64>,
    rate_before: Option<f64>,
    /// Samples in a row that show it down, and the time of the first.
    down: u32,
    since: UnixMs,
}

impl Ports {
    /// Takes in the newest sample of every port.
    pub(super) fn look(&mut self, cluster: &Cluster, limits: &Thresholds) {
        self.ports.resize(cluster.rows(Class::Port), None);
        for (_, node) in cluster.nodes() {
            let Some(at) = node.fed(Class::Port) else { continue };
            for row in node.rows(Class::Port) {
                self.look_at(cluster, node, *row, at, limits);
            }
        }
    }

    fn look_at(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        row: u32,
        at: UnixMs,
        limits: &Thresholds,
    ) {
        let Some(active) = is_active(cluster, row) else { return };
        let known = &mut self.ports[row as usize];
        if known.as_ref().is_some_and(|port| port.node != node.name) {
            *known = None;
        }
        let port = known.get_or_insert_with(|| Port {
            node: node.name.clone(),
            looked: UnixMs(i64::MIN),
            was_active: false,
            downed_before: None,
            rate_before: None,
            down: 0,
            since: at,
        });
        if port.looked >= at {
            return;
        }
        port.looked = at;
        let downed = cluster.value(port::LINK_DOWNED, row);
        if active {
            port.was_active = true;
            port.down = 0;
            port.downed_before = downed;
            port.rate_before = cluster.value(port::RATE, row);
            return;
        }
        if port.down == 0 {
            port.since = at;
        }
        port.down = port.down.saturating_add(1);
        // The link itself counted that it went down: no second sample is needed.
        if port.downed_before.zip(downed).is_some_and(|(before, now)| now > before) {
            port.down = port.down.max(limits.port_samples);
        }
    }
}

/// Whether a port is active; none if it does not say.
pub fn is_active(cluster: &Cluster, row: u32) -> Option<bool> {
    let state = cluster.value(port::STATE, row)?;
    let physical = cluster.value(port::PHYSICAL_STATE, row);
    Some(state == ACTIVE && physical.is_none_or(|physical| physical == LINK_UP))
}

/// Adds the ports that are down.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    // A job whose waiting is explained already is not charged a second time.
    let mut charged: BTreeSet<Safe> = seen
        .findings
        .iter()
        .flat_map(|finding| &finding.victims)
        .filter_map(|victim| victim.job.clone())
        .collect();
    for (_, node) in cluster.nodes() {
        let siblings = OnceCell::new();
        for row in node.rows(Class::Port) {
            let Some(entry) = cluster.device(Class::Port, *row) else { continue };
            let port = judge.ports.ports.get(*row as usize).and_then(Option::as_ref);
            let Some(port) = port.filter(|port| port.node == node.name) else { continue };
            match is_active(cluster, *row) {
                None => seen.unclear.push(id(node, entry)),
                Some(true) => {}
                Some(false) => {
                    let siblings = siblings.get_or_init(|| Siblings::of(cluster, node));
                    let place = Place { judge, cluster, node, row: *row, entry, port, siblings };
                    if place.is_fault() {
                        seen.findings.push(place.finding(&mut charged));
                    }
                }
            }
        }
    }
}

fn id(node: &Node, entry: &Entry) -> String {
    format!("{}/{}/{}", FindingKind::PortDown, node.name, entry.device)
}

/// One port that is down, with all that is needed to speak of it.
struct Place<'a> {
    judge: &'a Judge,
    cluster: &'a Cluster,
    node: &'a Node,
    row: u32,
    entry: &'a Entry,
    port: &'a Port,
    siblings: &'a Siblings,
}

/// What makes two ports siblings.
type Kind = (Safe, Safe, Safe);

/// The ports of a node that say whether they are active, by kind: how many are, and how many there are.
struct Siblings(HashMap<Kind, (usize, usize)>);

impl Siblings {
    fn of(cluster: &Cluster, node: &Node) -> Self {
        let mut counts: HashMap<Kind, (usize, usize)> = HashMap::new();
        for row in node.rows(Class::Port) {
            let Some(entry) = cluster.device(Class::Port, *row) else { continue };
            let Some(is_active) = is_active(cluster, *row) else { continue };
            let (active, all) = counts.entry(kind(entry)).or_default();
            *active += usize::from(is_active);
            *all += 1;
        }
        Self(counts)
    }
}

impl Place<'_> {
    fn is_fault(&self) -> bool {
        let limits = &self.judge.limits;
        if self.port.down < limits.port_samples {
            return false;
        }
        if self.port.was_active {
            return true;
        }
        let down_for = self.cluster.now().since(self.port.since).as_secs_f64();
        let (active, siblings) = self.siblings();
        // Over Ethernet an empty cage looks the same as a port switched off: neither was ever meant to be up.
        let switched_off = self.cluster.value(port::PHYSICAL_STATE, self.row) == Some(DISABLED);
        !switched_off
            && siblings as f64 >= limits.least_siblings
            && active == siblings
            && down_for >= limits.port_never_active_seconds
    }

    /// How many ports of the same kind of device are active, and how many there are.
    fn siblings(&self) -> (usize, usize) {
        // It is one of them itself, and down.
        let (active, all) = self.siblings.0.get(&kind(self.entry)).copied().unwrap_or_default();
        (active, all.saturating_sub(1))
    }

    fn finding(&self, charged: &mut BTreeSet<Safe>) -> Finding {
        let limits = &self.judge.limits;
        let (active, siblings) = self.siblings();
        let jobs = jobs(self.cluster, self.node);
        let mut lost = 0;
        for job in &jobs {
            if charged.insert(job.clone()) {
                lost += waiting(self.judge, self.cluster, job);
            }
        }
        let victim = |job: &Safe| Entity {
            job: Some(job.clone()),
            ..Entity::new(gaunt_schema::EntityKind::Job)
        };
        let empty = Safe::default();
        let key = |at: usize| self.entry.device.key.get(at).unwrap_or(&empty);
        Finding {
            id: id(self.node, self.entry),
            kind: FindingKind::PortDown,
            severity: if jobs.is_empty() { Severity::Warning } else { Severity::Critical },
            entity: Entity::port(&self.node.name, key(0), key(1)),
            since: self.port.since,
            confidence: if self.port.was_active && active > 0 {
                limits.sure_of_fact_ratio
            } else {
                limits.sure_of_alike_ratio
            },
            lost_gpus: lost as f64,
            victims: jobs.iter().take(MAX_VICTIMS).map(victim).collect(),
            jobs,
            summary: self.summary(active, siblings),
            next: self.next(),
            evidence: self.evidence(active, siblings),
        }
    }

    fn summary(&self, active: usize, siblings: usize) -> String {
        let before = if self.port.was_active { "" } else { " and was never active" };
        let mut text = format!(
            "{} on {} is down{before} since {}",
            self.entry.device,
            self.node.name,
            time_of_day(self.port.since)
        );
        if siblings > 0 {
            let _ =
                write!(text, ": {active} of its {} are active", count(siblings, "sibling port"));
        }
        text.push('.');
        text
    }

    fn next(&self) -> String {
        let leaf = self.entry.info(port::INFO, "leaf");
        let far =
            leaf.map_or_else(|| "the switch port".into(), |leaf| format!("its port on {leaf}"));
        let look =
            format!("look at the cable and transceiver of {} and at {far}.", self.entry.device);
        let ethernet =
            self.entry.info(port::INFO, "link_layer").is_some_and(|it| *it == "Ethernet");
        if !ethernet && self.cluster.value(port::PHYSICAL_STATE, self.row) == Some(DISABLED) {
            return format!("The link is disabled: if nobody switched it off, {look}");
        }
        look.replacen("look", "Look", 1)
    }

    fn evidence(&self, active: usize, siblings: usize) -> Vec<Evidence> {
        let value = |metric| self.cluster.value(metric, self.row);
        let of = |what, metric, limit| Evidence::new(what, value(metric), Unit::Count, limit);
        let state =
            of("logical state", port::STATE, Some(ACTIVE)).note("the limit stands for active");
        let physical = of("physical state", port::PHYSICAL_STATE, Some(LINK_UP))
            .note("the limit stands for a link that is up");
        let (some, all) = (Some(active as f64), Some(siblings as f64));
        let others = Evidence::new("sibling ports that are active", some, Unit::Count, all)
            .note("of as many as the limit says");
        let before = self.port.downed_before;
        let downed = of("times that the link went down", port::LINK_DOWNED, before)
            .note(if before.is_some() { "the limit is what it was before" } else { "" });
        let rate = Evidence::new(
            "line rate when it was active",
            self.port.rate_before,
            Unit::BytesPerSecond,
            None,
        );
        let known = |evidence: &Evidence| evidence.value.is_some();
        [state, physical, others, downed, rate].into_iter().filter(known).collect()
    }
}

/// What makes two ports siblings: the type of their adapter and link, or the beginning of their names.
fn kind(entry: &Entry) -> Kind {
    let empty = Safe::default;
    let info = |label| entry.info(port::INFO, label).cloned();
    let key = |at: usize| entry.device.key.get(at).cloned().unwrap_or_else(empty);
    let hca = info("hca_type")
        .unwrap_or_else(|| Safe::new(key(0).trim_end_matches(|c: char| c.is_ascii_digit())));
    (hca, info("link_layer").unwrap_or_else(empty), key(1))
}

/// The jobs on a node.
pub(super) fn jobs(cluster: &Cluster, node: &Node) -> Vec<Safe> {
    let gpus = node.rows(Class::Gpu).iter();
    let mut jobs: Vec<_> = gpus.filter_map(|gpu| cluster.job(*gpu).cloned()).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}

/// GPUs of a job that wait.
fn waiting(judge: &Judge, cluster: &Cluster, job: &Safe) -> usize {
    let gpus = cluster.jobs().get(job).into_iter().flatten();
    gpus.filter(|gpu| judge.state(**gpu) == GpuState::Waiting).count()
}
