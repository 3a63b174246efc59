//! Slow suspects: finds ports that are slow with all peers, and leaves that are slow only across leaves.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{SanitizedText, natural_order};

use super::{PairKey, PairingSuspect, SuspectPart};
use gaunt_api::{PairEnd, ProbePair, ProbeSuspect, RailMatrix, SuspectKind};

/// Below this share of the baseline a pair is slow: two measurements of the same cables differ by a few per cent.
const SLOW: f64 = 0.8;

/// Minimum number of pairs for a baseline.
const ENOUGH: usize = 3;

/// The rails with their pairs, shares, and suspects.
pub(super) fn rail_matrices(pairs: &BTreeMap<PairKey, ProbePair>) -> Vec<RailMatrix> {
    let mut rails: BTreeMap<&SanitizedText, Vec<ProbePair>> = BTreeMap::new();
    for ((rail, ..), pair) in pairs {
        rails.entry(rail).or_default().push(pair.clone());
    }
    let mut rails: Vec<_> = rails.into_iter().collect();
    rails.sort_by(|(one, _), (other, _)| natural_order(one, other));
    rails.into_iter().map(|(rail, pairs)| rail_matrix(rail, pairs)).collect()
}

/// Suspects of all rails. The path between two leaves belongs to neither, and is listed in the matrix only.
pub(super) fn find_suspects(pairs: &BTreeMap<PairKey, ProbePair>) -> Vec<PairingSuspect> {
    let ends = || pairs.keys().flat_map(|(_, from, to)| [from, to]);
    let all = rail_matrices(pairs).into_iter().flat_map(|rail| rail.suspects);
    let accused = all.filter_map(|ProbeSuspect { kind, name: of, ratio, pairs }| {
        let what = match kind {
            SuspectKind::Port => {
                SuspectPart::Port(ends().find(|end| port_name(end) == of)?.clone())
            }
            SuspectKind::Leaf => SuspectPart::Leaf(of),
            SuspectKind::Uplink => SuspectPart::Uplink(of),
            SuspectKind::Path => return None,
        };
        Some(PairingSuspect { part: what, ratio, pairs })
    });
    accused.collect()
}

fn rail_matrix(rail: &SanitizedText, mut pairs: Vec<ProbePair>) -> RailMatrix {
    let of = |pairs: &[ProbePair], across| {
        let some = pairs.iter().filter(|pair| is_across_leaves(pair) == across);
        median_and_count(some.filter_map(|pair| pair.bytes_per_second).collect())
    };
    let (within_leaf, across_leaves) = (of(&pairs, false), of(&pairs, true));
    for pair in &mut pairs {
        let usual = if is_across_leaves(pair) { across_leaves } else { within_leaf };
        let usual = usual.map(|(value, _)| value);
        pair.ratio = pair.bytes_per_second.zip(usual).map(|(value, usual)| value / usual);
    }
    let mut suspects = Vec::new();
    if within_leaf.is_some_and(|(_, count)| count >= ENOUGH) {
        suspect_ports(&pairs, &mut suspects);
    }
    if across_leaves.is_some_and(|(_, count)| count >= ENOUGH) {
        suspect_paths(&pairs, &mut suspects);
    }
    suspects.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
    RailMatrix {
        rail: rail.clone(),
        within_leaf: within_leaf.map(|(value, _)| value),
        across_leaves: across_leaves.map(|(value, _)| value),
        pairs,
        suspects,
    }
}

/// A port, and if it is slow: the median of its shares, and their number.
type PortSlowness<'a> = (&'a PairEnd, Option<(f64, usize)>);

/// Ports that are slow with all peers; a leaf of which most are is named in their place.
fn suspect_ports(pairs: &[ProbePair], suspects: &mut Vec<ProbeSuspect>) {
    let within = pairs.iter().filter(|pair| !is_across_leaves(pair));
    let ends: BTreeSet<&PairEnd> = within.flat_map(|pair| [&pair.from, &pair.to]).collect();
    let mut leaves: BTreeMap<&Option<SanitizedText>, Vec<PortSlowness<'_>>> = BTreeMap::new();
    for end in ends {
        // All of its pairs, also those across leaves: a port that is slow with some peers only is not slow itself.
        let own = pairs.iter().filter(|pair| pair.from == *end || pair.to == *end);
        let ratios: Vec<f64> = own.filter_map(|pair| pair.ratio).collect();
        let slow = ratios.len() >= 2 && ratios.iter().all(|ratio| *ratio < SLOW);
        leaves.entry(&end.leaf).or_default().push((end, median_and_count(ratios).filter(|_| slow)));
    }
    for (leaf, ports) in leaves {
        let slow: Vec<_> = ports.iter().filter_map(|(end, slow)| Some((end, (*slow)?))).collect();
        let most = ports.len() >= ENOUGH && 2 * slow.len() > ports.len();
        if let Some(name) = leaf.as_ref().filter(|_| most) {
            let ratios = slow.iter().map(|(_, (ratio, _))| *ratio).collect();
            let count = slow.iter().map(|(_, (_, count))| count).sum();
            if let Some((ratio, _)) = median_and_count(ratios) {
                suspects.push(new_suspect(SuspectKind::Leaf, name.clone(), ratio, count));
            }
            continue;
        }
        for (end, (ratio, count)) in slow {
            suspects.push(new_suspect(SuspectKind::Port, port_name(end), ratio, count));
        }
    }
}

/// A port's name.
fn port_name(end: &PairEnd) -> SanitizedText {
    SanitizedText::new(&format!("{} {}/{}", end.node, end.device, end.port))
}

/// Leaves that are slow with every other one, and paths between two leaves that are not.
fn suspect_paths(pairs: &[ProbePair], suspects: &mut Vec<ProbeSuspect>) {
    let blamed: Vec<SanitizedText> = suspects.iter().map(|suspect| suspect.name.clone()).collect();
    let is_blamed = |end: &PairEnd| {
        blamed.contains(&port_name(end))
            || end.leaf.as_ref().is_some_and(|leaf| blamed.contains(leaf))
    };
    let mut between: BTreeMap<(&SanitizedText, &SanitizedText), f64> = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| !is_blamed(&pair.from) && !is_blamed(&pair.to)) {
        let (Some(one), Some(other), Some(ratio)) = (&pair.from.leaf, &pair.to.leaf, pair.ratio)
        else {
            continue;
        };
        if one != other {
            let (low, high) = if one < other { (one, other) } else { (other, one) };
            // One port may be slow for another reason: the best pair represents the path.
            let known = between.entry((low, high)).or_insert(ratio);
            *known = known.max(ratio);
        }
    }
    let leaves: BTreeSet<&SanitizedText> =
        between.keys().flat_map(|(one, other)| [*one, *other]).collect();
    let mut up = BTreeSet::new();
    for leaf in leaves {
        let own = between.iter().filter(|((one, other), _)| *one == leaf || *other == leaf);
        let ratios: Vec<f64> = own.map(|(_, ratio)| *ratio).collect();
        let slow = ratios.len() >= 2 && ratios.iter().all(|ratio| *ratio < SLOW);
        if let Some((ratio, count)) = median_and_count(ratios).filter(|_| slow) {
            up.insert(leaf);
            suspects.push(new_suspect(SuspectKind::Uplink, leaf.clone(), ratio, count));
        }
    }
    for ((one, other), ratio) in between {
        if ratio < SLOW && !up.contains(one) && !up.contains(other) {
            let name = SanitizedText::new(&format!("{one} - {other}"));
            suspects.push(new_suspect(SuspectKind::Path, name, ratio, 1));
        }
    }
}

fn new_suspect(kind: SuspectKind, name: SanitizedText, ratio: f64, pairs: usize) -> ProbeSuspect {
    ProbeSuspect { kind, name, ratio, pairs: pairs as u32 }
}

/// Whether a pair connects two known leaves.
fn is_across_leaves(pair: &ProbePair) -> bool {
    pair.from.leaf.is_some() && pair.to.leaf.is_some() && pair.from.leaf != pair.to.leaf
}

/// The median, and the number of values.
fn median_and_count(mut values: Vec<f64>) -> Option<(f64, usize)> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let upper = *values.get(count / 2)?;
    let lower = values[(count - 1) / 2];
    Some((f64::midpoint(lower, upper), count))
}
