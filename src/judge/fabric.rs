//! Where in the fabric packets queue up: the port that blocks it, the leaf, the rail.
//!
//! Bad ports vote for what they have in common: the smallest thing of which most members are bad is to blame.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use gaunt_schema::{Class, Entity, EntityKind, FindingKind, Safe, unit::Unit};

use super::{
    Evidence, Judge,
    crowd::median,
    finding::{MAX_VICTIMS, Suspicion, count, percent},
    gang::Gang,
    life::Seen,
    links::{Link, now},
    together::Group,
};
use crate::cluster::{Cluster, Node, NodeId};

/// Adds hosts that block the network, and congested leaves and rails.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    let mut blockers = BTreeSet::new();
    for (id, node) in cluster.nodes() {
        if let Some(suspicion) = host_blocks(judge, cluster, id, node) {
            blockers.insert(id);
            seen.suspicions.push(suspicion);
        }
    }
    if !judge.together.any() {
        return;
    }
    let ports = ports(judge, cluster);
    incasts(judge, cluster, &ports, seen);
    for group in judge.together.now(cluster.now()) {
        seen.suspicions.push(unnamed_leaf(judge, cluster, &ports, group));
    }
    let mut rails: BTreeMap<&Safe, Vec<Place<'_>>> = BTreeMap::new();
    for place in places(&ports) {
        if place.is_bad(judge) {
            rails.entry(place.rail).or_default().push(place);
        }
    }
    let many = rails.len() >= judge.limits.many_rails as usize;
    for (rail, leaves) in rails {
        // A rail that is slow under several leaves is more than any of them; so is one whose leaves nobody knows.
        let named: BTreeSet<&Safe> = leaves.iter().filter_map(|place| place.leaf).collect();
        let suspicion = match named.len() {
            1 if leaves.len() == 1 => {
                leaf_congested(judge, cluster, named.into_iter().next(), rail, &leaves[0])
            }
            _ if many && named.len() == 1 => continue,
            _ => rail_slow(judge, cluster, rail, &leaves),
        };
        seen.suspicions.push(suspicion);
    }
}

/// Whether packets of any port queue up.
pub(super) fn is_congested(judge: &Judge, cluster: &Cluster) -> bool {
    let congested = |row: u32| {
        let link = judge.links.of(row)?;
        now(link.carried, cluster).filter(|share| *share >= judge.limits.carries_ratio)?;
        congested(judge, cluster, row, link)
    };
    let mut rows = cluster.nodes().flat_map(|(_, node)| node.rows(Class::Port));
    rows.any(|row| congested(*row).is_some())
}

/// Congested ports of which nobody says the leaf, by rail, where they are too few for the rail to be to blame and too
/// many for each to be. Nodes with several congested rails have that in common, and not a switch.
pub(super) fn unnamed(judge: &Judge, cluster: &Cluster) -> Vec<(Safe, Vec<u32>)> {
    let ports = ports(judge, cluster);
    let mut rails: BTreeMap<NodeId, usize> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.congested.is_some()) {
        *rails.entry(port.node).or_default() += 1;
    }
    let few = |place: &Place<'_>| {
        let bad = place.bad();
        let alone = bad.iter().filter(|port| rails.get(&port.node) == Some(&1)).count();
        bad.len() as f64 >= judge.limits.together_ports && alone * 2 > bad.len()
    };
    let places = places(&ports).into_iter().filter(|place| place.leaf.is_none());
    let apart = places.filter(|place| !place.is_bad(judge) && few(place));
    let rows = |place: &Place<'_>| place.bad().iter().map(|port| port.row).collect();
    apart.map(|place| (place.rail.clone(), rows(&place))).collect()
}

/// Ports that are congested together, of which nobody says what they have in common: most likely a leaf.
fn unnamed_leaf(judge: &Judge, cluster: &Cluster, ports: &[Port<'_>], group: &Group) -> Suspicion {
    let congested: HashSet<u32> = group.bad.iter().copied().collect();
    let bad: Vec<&Port<'_>> = ports.iter().filter(|port| congested.contains(&port.row)).collect();
    let all = ports.iter().filter(|port| port.rail == group.rail).count();
    let nodes: BTreeSet<NodeId> = bad.iter().map(|port| port.node).collect();
    let names: Vec<&str> = nodes
        .iter()
        .filter_map(|id| Some(cluster.node(*id)?.name.as_str()))
        .take(MOST_NAMED)
        .collect();
    let more = if nodes.len() > names.len() { " and others" } else { "" };
    let again = if group.times > 1 {
        format!(", for the {} time", nth(group.times))
    } else {
        String::new()
    };
    let entity = Entity { rail: Some(group.rail.clone()), ..Entity::new(EntityKind::Rail) };
    let times = Evidence::new(
        "times that these ports were congested together",
        Some(f64::from(group.times)),
        Unit::Count,
        None,
    )
    .note("nobody names their leaf: that they share one is learned from this");
    hotspot(judge, cluster, FindingKind::LeafCongested, entity, &bad, format!("of {all}"))
        .hold(judge.limits.incast_seconds.max(judge.two_samples(cluster)))
        .learned()
        .says(
            format!(
                "{} of {all} on rail {} are congested together{again}, those of {}{more}: probably they share a leaf switch, which nobody names.",
                count(bad.len(), "port"),
                group.rail,
                names.join(", "),
            ),
            "Look at the switch that these nodes' ports are plugged into, and write the wiring down for gaunt.".to_owned(),
        )
        .on([times])
}

/// Nodes that are named in a sentence.
const MOST_NAMED: usize = 4;

fn nth(number: u32) -> String {
    match number {
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        more => format!("{more}th"),
    }
}

/// Adds receivers to which several send more than they can take, where nothing larger is congested.
fn incasts(judge: &Judge, cluster: &Cluster, ports: &[Port<'_>], seen: &mut Seen) {
    let mut rails: BTreeMap<&Safe, Vec<&Port<'_>>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.congested.is_some()) {
        rails.entry(&port.rail).or_default().push(port);
    }
    // Where several ports of a rail are congested, what they share is.
    let mut senders: HashMap<NodeId, usize> = HashMap::new();
    for bad in rails.values() {
        if let [port] = bad.as_slice() {
            seen.suspicions.extend(incast(judge, cluster, port, &mut senders));
        }
    }
}

/// Nodes with which a node shares a job and whose ports obey notifications to slow down.
fn count_senders(judge: &Judge, cluster: &Cluster, of: NodeId, node: &Node) -> usize {
    let limits = &judge.limits;
    let gangs = judge.gangs.on(node.rows(Class::Gpu));
    let peers = gangs.iter().flat_map(|gang| &gang.nodes).filter(|id| **id != of);
    let obeys = |id: &&NodeId| {
        let rows = cluster.node(**id).map(|node| node.rows(Class::Port)).unwrap_or_default();
        rows.iter().filter_map(|row| judge.links.of(*row)).any(|link| {
            link.notified_times(cluster, limits).is_some_and(|times| times >= limits.notified_times)
        })
    };
    peers.filter(obeys).count()
}

/// `known` holds the senders of those nodes that were looked at: a node may have a thousand ports.
fn incast(
    judge: &Judge,
    cluster: &Cluster,
    port: &Port<'_>,
    known: &mut HashMap<NodeId, usize>,
) -> Option<Suspicion> {
    let limits = &judge.limits;
    let marked = now(port.link.marked, cluster).filter(|it| *it >= limits.marked_packets_ratio);
    let far = judge.switches.of(port.row).and_then(|far| far.queues(cluster, limits));
    // What waits to be sent is the sender's, and not the receiver's.
    if marked.is_none() && far.is_none() {
        return None;
    }
    let node = cluster.node(port.node)?;
    let senders =
        *known.entry(port.node).or_insert_with(|| count_senders(judge, cluster, port.node, node));
    if (senders as f64) < limits.incast_senders {
        return None;
    }
    let slowed = slowed(judge, cluster, &BTreeSet::from([port.node]));
    let kinds =
        1 + usize::from(marked.is_some() && far.is_some()) + usize::from(!slowed.is_empty());
    let key = &cluster.device(Class::Port, port.row)?.device.key;
    let (device, number) = (key.first()?, key.get(1)?);
    let entity = Entity { leaf: port.leaf.cloned(), ..Entity::port(&node.name, device, number) };
    let lost = slowed.iter().map(|gang| gang.lost_gpus()).sum();
    let victims = slowed.iter().flat_map(|gang| gang.victims(cluster, Some(port.node)));
    Some(
        Suspicion::of(FindingKind::LeafCongested, entity, kinds, true)
            .hold(limits.incast_seconds.max(judge.two_samples(cluster)))
            .slows(slowed.iter().copied())
            .costs(lost, victims.take(MAX_VICTIMS).collect())
            .says(
                format!("Packets for {device} of {} queue up before it, and {} slow down: more is sent to it at once than it can take.", node.name, count(senders, "sender")),
                "Look at what sends to this node at the same time, and at how its ranks are laid over the rails.".to_owned(),
            )
            .on([
                Evidence::new("packets with a congestion mark", marked, Unit::Ratio, Some(limits.marked_packets_ratio)),
                Evidence::new("waiting and drops at its switch, times their limits", far, Unit::Count, Some(1.0)).note("the limit is those themselves"),
                Evidence::new("nodes that are told to slow down", Some(senders as f64), Unit::Count, Some(limits.incast_senders)),
            ]),
    )
}

/// A port that carries something, where it is, and how its packets queue.
struct Port<'a> {
    node: NodeId,
    row: u32,
    link: &'a Link,
    leaf: Option<&'a Safe>,
    rail: Safe,
    /// The strongest sign of congestion, as how many times its limit; none if there is none.
    congested: Option<f64>,
}

/// Ports of one rail below one leaf.
struct Place<'a> {
    leaf: Option<&'a Safe>,
    rail: &'a Safe,
    members: Vec<&'a Port<'a>>,
}

impl Place<'_> {
    fn bad(&self) -> Vec<&Port<'_>> {
        self.members.iter().filter(|port| port.congested.is_some()).copied().collect()
    }

    fn is_bad(&self, judge: &Judge) -> bool {
        let bad = self.bad().len();
        bad as f64 >= judge.limits.least_members
            && bad as f64 >= judge.limits.members_bad_ratio * self.members.len() as f64
    }
}

fn ports<'a>(judge: &'a Judge, cluster: &'a Cluster) -> Vec<Port<'a>> {
    let mut ports = Vec::new();
    for (id, node) in cluster.nodes() {
        for row in node.rows(Class::Port) {
            let Some(link) = judge.links.of(*row) else { continue };
            if !now(link.carried, cluster).is_some_and(|it| it >= judge.limits.carries_ratio) {
                continue;
            }
            let Some(rail) = rail_of(cluster, *row) else { continue };
            let wiring = cluster.wiring().port(*row);
            let leaf = wiring.and_then(|wiring| wiring.leaf.as_ref()).map(|told| &told.value);
            ports.push(Port {
                node: id,
                row: *row,
                link,
                leaf,
                rail,
                congested: congested(judge, cluster, *row, link),
            });
        }
    }
    ports
}

/// The ports of a leaf or a rail that carry something, at most so many of them.
pub(super) fn members(judge: &Judge, cluster: &Cluster, of: &Entity, most: usize) -> Vec<u32> {
    if of.leaf.is_none() && of.rail.is_none() {
        return Vec::new();
    }
    let ports = ports(judge, cluster);
    let leaf = |port: &&Port<'_>| of.leaf.is_none() || port.leaf == of.leaf.as_ref();
    let rail = |port: &&Port<'_>| of.rail.as_ref().is_none_or(|rail| port.rail == *rail);
    let rows: Vec<u32> = ports.iter().filter(leaf).filter(rail).map(|port| port.row).collect();
    let step = rows.len().div_ceil(most.max(1)).max(1);
    rows.into_iter().step_by(step).collect()
}

/// The rail of a port.
pub(super) fn rail_of(cluster: &Cluster, row: u32) -> Option<Safe> {
    let wiring = cluster.wiring().port(row);
    let told = wiring.and_then(|wiring| wiring.rail.as_ref()).map(|told| told.value.clone());
    told.or_else(|| Some(number(cluster.device(Class::Port, row)?.device.key.first())))
}

/// The number at the end of a device's name: where nobody says the rail, equal devices are on equal rails.
fn number(device: Option<&Safe>) -> Safe {
    let name = device.map(Safe::as_str).unwrap_or_default();
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    if digits < name.len() { Safe::new(&name[digits..]) } else { Safe::new(name) }
}

fn places<'a>(ports: &'a [Port<'a>]) -> Vec<Place<'a>> {
    let mut places: BTreeMap<(Option<&Safe>, &Safe), Vec<&Port<'a>>> = BTreeMap::new();
    for port in ports {
        places.entry((port.leaf, &port.rail)).or_default().push(port);
    }
    let place = |((leaf, rail), members)| Place { leaf, rail, members };
    places.into_iter().map(place).collect()
}

/// Marks where packets arrive say that a queue on their way is full, and name the place. Where no switch marks packets,
/// as on InfiniBand, those who wait to send are all that is seen.
fn congested(judge: &Judge, cluster: &Cluster, row: u32, link: &Link) -> Option<f64> {
    let limits = &judge.limits;
    let far = judge.switches.of(row).and_then(|far| far.queues(cluster, limits));
    if let Some(marked) = now(link.marked, cluster) {
        let marks = marked / limits.marked_packets_ratio;
        return far.into_iter().chain([marks]).filter(|times| *times >= 1.0).reduce(f64::max);
    }
    let waited = link.waited_times(cluster, limits).map(|times| times / limits.waited_times);
    let paused = now(link.paused, cluster).map(|share| share / limits.paused_ratio);
    let signs = waited.into_iter().chain(paused).chain(far);
    signs.filter(|times| *times >= 1.0).reduce(f64::max)
}

fn slowed<'a>(judge: &'a Judge, cluster: &'a Cluster, nodes: &BTreeSet<NodeId>) -> Vec<&'a Gang> {
    let (mut gangs, mut known): (Vec<&Gang>, HashSet<*const Gang>) = Default::default();
    for node in nodes.iter().filter_map(|id| cluster.node(*id)) {
        for gang in judge.gangs.on(node.rows(Class::Gpu)) {
            let slow = gang.slowed().is_some_and(|slowed| slowed >= judge.limits.slowed_ratio);
            if slow && known.insert(std::ptr::from_ref(gang)) {
                gangs.push(gang);
            }
        }
    }
    gangs
}

fn leaf_congested(
    judge: &Judge,
    cluster: &Cluster,
    leaf: Option<&Safe>,
    rail: &Safe,
    place: &Place<'_>,
) -> Suspicion {
    let entity = Entity { leaf: leaf.cloned(), ..Entity::new(EntityKind::Leaf) };
    let bad = place.bad();
    let summary = format!(
        "{} of {} below {} on rail {rail} are congested.",
        count(bad.len(), "port"),
        place.members.len(),
        leaf.map(Safe::as_str).unwrap_or_default()
    );
    let of = format!("of {} on rail {rail}", place.members.len());
    hotspot(judge, cluster, FindingKind::LeafCongested, entity, &bad, of).says(
        summary,
        "Look at the queues and the uplinks of this switch, and at who sends to the ports below it.".to_owned(),
    )
}

fn rail_slow(judge: &Judge, cluster: &Cluster, rail: &Safe, places: &[Place<'_>]) -> Suspicion {
    let entity = Entity { rail: Some(rail.clone()), ..Entity::new(EntityKind::Rail) };
    let bad: Vec<&Port<'_>> = places.iter().flat_map(Place::bad).collect();
    let leaves = places.iter().filter(|place| place.leaf.is_some()).count();
    let below = if leaves > 0 {
        format!(" below {}", count(leaves, "leaf switch").replace("switchs", "switches"))
    } else {
        String::new()
    };
    let members: usize = places.iter().map(|place| place.members.len()).sum();
    let of = format!("of {members}{below}");
    hotspot(judge, cluster, FindingKind::RailSlow, entity, &bad, of).says(
        format!("{} on rail {rail}{below} are congested.", count(bad.len(), "port")),
        "Look at the spine switches of this rail and at their links to the leaves.".to_owned(),
    )
}

fn hotspot(
    judge: &Judge,
    cluster: &Cluster,
    kind: FindingKind,
    entity: Entity,
    bad: &[&Port<'_>],
    of: String,
) -> Suspicion {
    let limits = &judge.limits;
    let nodes: BTreeSet<NodeId> = bad.iter().map(|port| port.node).collect();
    let gangs = slowed(judge, cluster, &nodes);
    let middle = |of: fn(&Link) -> super::average::Average| {
        median(bad.iter().filter_map(|port| now(of(port.link), cluster)))
    };
    let paused = middle(|link| link.paused);
    let notified = median(bad.iter().filter_map(|port| port.link.notified_times(cluster, limits)));
    let far = bad.iter().filter_map(|port| judge.switches.of(port.row)?.queues(cluster, limits));
    let far = far.reduce(f64::max);
    let kinds = 1
        + usize::from(far.is_some())
        + usize::from(paused.is_some_and(|share| share >= limits.paused_ratio))
        + usize::from(notified.is_some_and(|times| times >= limits.notified_times))
        + usize::from(!gangs.is_empty());
    let lost = gangs.iter().map(|gang| gang.lost_gpus()).sum();
    let victims =
        gangs.iter().flat_map(|gang| gang.victims(cluster, None)).take(MAX_VICTIMS).collect();
    let suspicion = Suspicion::of(kind, entity, kinds, true).slows(gangs);
    suspicion.hold(limits.hotspot_seconds).costs(lost, victims).on([
        Evidence::new("congested ports", Some(bad.len() as f64), Unit::Count, None).note(of),
        Evidence::new(
            "packets with a congestion mark",
            middle(|link| link.marked),
            Unit::Ratio,
            Some(limits.marked_packets_ratio),
        ),
        Evidence::new(
            "time in which the network stops them",
            paused,
            Unit::Ratio,
            Some(limits.paused_ratio),
        ),
        Evidence::new(
            "notifications to slow down, times the usual number",
            notified,
            Unit::Count,
            Some(limits.notified_times),
        ),
        Evidence::new(
            "waiting and drops at the switch, times their limits",
            far,
            Unit::Count,
            Some(1.0),
        )
        .note("the limit is those themselves"),
    ])
}

/// A host that takes what it receives too slowly, and so stops the network.
fn host_blocks(judge: &Judge, cluster: &Cluster, id: NodeId, node: &Node) -> Option<Suspicion> {
    let limits = &judge.limits;
    let suspect = |link: &Link| {
        now(link.pauses, cluster).is_some_and(|share| share >= limits.pauses_ratio)
            || now(link.unbuffered, cluster).is_some_and(|it| it >= limits.unbuffered_per_second)
    };
    if !node.rows(Class::Port).iter().filter_map(|row| judge.links.of(*row)).any(suspect) {
        return None;
    }
    let links: Vec<&Link> =
        node.rows(Class::Port).iter().filter_map(|row| judge.links.of(*row)).collect();
    let carrying: Vec<&&Link> = links
        .iter()
        .filter(|link| {
            now(link.carried, cluster).is_some_and(|share| share >= limits.carries_ratio)
        })
        .collect();
    let pauses = |link: &&&&Link| {
        now(link.pauses, cluster).is_some_and(|share| share >= limits.pauses_ratio)
    };
    let drops = |link: &&&&Link| {
        now(link.unbuffered, cluster).is_some_and(|rate| rate >= limits.unbuffered_per_second)
    };
    let (stopping, dropping) =
        (carrying.iter().filter(pauses).count(), carrying.iter().filter(drops).count());
    let stopped = node
        .rows(Class::Port)
        .iter()
        .filter_map(|row| now(judge.switches.of(*row)?.stopped, cluster));
    let stopped = stopped.reduce(f64::max);
    if stopping.max(dropping) == 0 || stopping.max(dropping) * 2 < carrying.len() {
        return None;
    }
    let gangs = slowed(judge, cluster, &BTreeSet::from([id]));
    let share = median(carrying.iter().filter_map(|link| now(link.pauses, cluster)));
    let unbuffered = median(carrying.iter().filter_map(|link| now(link.unbuffered, cluster)));
    let confirmed = stopped.is_some_and(|frames| frames >= limits.switch_stopped_per_second);
    let kinds = [stopping > 0, dropping > 0, confirmed, !gangs.is_empty()];
    let kinds = kinds.into_iter().filter(|kind| *kind).count();
    let how = match share.filter(|_| stopping > 0) {
        Some(share) => format!("stops the network {} of the time", percent(share)),
        None => format!("has no buffer for {:.1} packets a second", unbuffered.unwrap_or_default()),
    };
    Some(
        Suspicion::of(FindingKind::HostBlocksNetwork, Entity::node(&node.name), kinds, true)
            .hold(limits.hotspot_seconds)
            .slows(gangs.iter().copied())
            .costs(
                gangs.iter().map(|gang| gang.lost_gpus()).sum(),
                gangs.iter().flat_map(|gang| gang.victims(cluster, Some(id))).take(MAX_VICTIMS).collect(),
            )
            .says(
                format!("{} {how}: it takes what it receives too slowly.", node.name),
                format!("Look at the PCIe links of {}'s adapters, at its IOMMU and memory settings, and at what else loads its memory.", node.name),
            )
            .on([
                Evidence::new("ports that stop the network", Some(stopping as f64), Unit::Count, None).note(format!("of {}", carrying.len())),
                Evidence::new("time in which they stop it", share, Unit::Ratio, Some(limits.pauses_ratio)),
                Evidence::new("packets without a buffer in a second", unbuffered, Unit::Count, Some(limits.unbuffered_per_second)),
                Evidence::new("pause frames that its switch receives in a second", stopped, Unit::Count, Some(limits.switch_stopped_per_second)),
            ]),
    )
}
