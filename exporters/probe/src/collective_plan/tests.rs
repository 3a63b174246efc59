//! Plans executed on the host: every collective is correct for every number of ranks, any size and any allowed order.

use std::{mem, sync::LazyLock};

use proptest::prelude::*;

use super::*;
use crate::pattern;

/// The most elements of a plan.
const MAX_ELEMENTS: usize = 4_099;

/// What each rank sends: computed once, because every test needs the same.
static PATTERNS: LazyLock<Vec<Vec<u32>>> = LazyLock::new(|| {
    let value = |rank: usize, index: usize| pattern::element_value(rank as u32, index as u64, 7);
    (0..MAX_RANKS).map(|rank| (0..MAX_ELEMENTS).map(|index| value(rank, index)).collect()).collect()
});

/// Executes a plan in an order that its waits and streams allow, chosen by `pick`. Elements never written are zero,
/// which is never correct.
fn execute_plan(plan: &CollectivePlan, mut pick: impl FnMut(usize) -> usize) -> Vec<Vec<u32>> {
    let patterns: &[Vec<u32>] = &PATTERNS;
    let value = |rank: usize, index: usize| {
        let sent = plan.sends[rank];
        assert!(index < sent.elements, "rank {rank} sends no element {index}");
        patterns[rank][sent.base + index]
    };
    let mut received = vec![vec![0_u32; plan.receive_elements]; plan.ranks];
    let mut pending: Vec<usize> = (0..plan.moves.len()).collect();
    let mut finished = vec![false; plan.moves.len()];
    while !pending.is_empty() {
        // Of each stream only the first move can be next.
        let mut is_busy = vec![false; plan.ranks * plan.channels];
        let mut ready = Vec::new();
        for (position, &number) in pending.iter().enumerate() {
            let PlannedMove { channel, to, .. } = plan.moves[number];
            let has_earlier = mem::replace(&mut is_busy[to.rank * plan.channels + channel], true);
            if !has_earlier && plan.waits[number].iter().all(|&other| finished[other]) {
                ready.push(position);
            }
        }
        let number = pending.remove(ready[pick(ready.len())]);
        finished[number] = true;
        let planned = plan.moves[number];
        for offset in 0..planned.elements {
            let from = planned.from.at + offset;
            let incoming = match planned.from.side {
                BufferSide::Send => value(planned.from.rank, from),
                BufferSide::Receive => received[planned.from.rank][from],
            };
            let own = planned.summand.map_or(0, |summand| value(planned.to.rank, summand + offset));
            received[planned.to.rank][planned.to.at + offset] = incoming + own;
        }
    }
    received
}

fn verify_received(plan: &CollectivePlan, received: &[Vec<u32>]) {
    let patterns: &[Vec<u32>] = &PATTERNS;
    for expected in &plan.expected {
        let sources = &patterns[expected.first..expected.first + expected.ranks];
        for offset in 0..expected.elements {
            let index = expected.base + offset;
            let expected_value: u32 = sources.iter().map(|sent| sent[index]).sum();
            let actual = received[expected.rank][expected.at + offset];
            assert_eq!(
                actual,
                expected_value,
                "rank {}, element {}",
                expected.rank,
                expected.at + offset
            );
        }
    }
}

/// The elements that a rank must have received, as the collective is defined.
fn expected_elements(collective: Collective, rank: usize, ranks: usize, elements: usize) -> usize {
    let chunks = split_elements(elements, ranks);
    match collective {
        Collective::ReduceScatter => chunks[rank].len(),
        Collective::AllToAll => chunks[rank].len() * ranks,
        _ => elements,
    }
}

#[test]
fn collectives_are_correct_for_1_to_16_ranks_and_odd_sizes() {
    for collective in Collective::ALL {
        for ranks in 1..=MAX_RANKS {
            for elements in [1, 7, 129, 1_000, MAX_ELEMENTS] {
                let plan = CollectivePlan::new(collective, ranks, elements, 2);
                verify_received(&plan, &execute_plan(&plan, |_| 0));
                for rank in 0..ranks {
                    let sums = plan.expected.iter().filter(|sum| sum.rank == rank);
                    let covered: usize = sums.map(|sum| sum.elements).sum();
                    let expected = expected_elements(collective, rank, ranks, elements);
                    assert_eq!(covered, expected, "{collective:?} of {ranks}, rank {rank}");
                }
            }
        }
    }
}

#[test]
fn ring_traffic_equals_bus_bandwidth_factor() {
    for collective in Collective::ALL {
        for ranks in 2..=MAX_RANKS {
            let elements = ranks * ALIGN * 16;
            let traffic =
                CollectivePlan::new(collective, ranks, elements, 4).crossing_elements(ranks) as f64;
            let mut links = ranks as f64;
            if collective == Collective::Broadcast {
                links -= 1.0; // A chain has one link fewer than a ring.
            }
            let per_link = traffic / links / elements as f64;
            let factor = collective.bus_factor(ranks).unwrap();
            assert!(
                (per_link - factor).abs() < 1e-9,
                "{collective:?} of {ranks}: {per_link}, {factor}"
            );
        }
    }
}

proptest! {
    #[test]
    fn plan_is_correct_in_any_order_the_waits_allow(
        which in 0..6_usize,
        ranks in 1..9_usize,
        elements in 1..700_usize,
        channels in 1..4_usize,
        seed in any::<u64>(),
    ) {
        let plan = CollectivePlan::new(Collective::ALL[which], ranks, elements, channels);
        let mut state = seed | 1;
        let received = execute_plan(&plan, |count| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        });
        verify_received(&plan, &received);
    }
}
