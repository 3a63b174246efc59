//! Plans executed on the host: every collective is correct for every number of ranks, any size and any allowed order.

use proptest::prelude::*;

use super::*;
use crate::pattern;

/// Executes a plan in an order that its waits and streams allow, chosen by `pick`. Elements never written are zero,
/// which is never correct.
fn execute_plan(plan: &CollectivePlan, mut pick: impl FnMut(usize) -> usize) -> Vec<Vec<u32>> {
    let value = |rank: usize, at: usize| {
        let filling = plan.sends[rank];
        assert!(at < filling.elements, "rank {rank} sends no element {at}");
        pattern::element_value(rank as u32, (filling.base + at) as u64, 7)
    };
    let mut received = vec![vec![0_u32; plan.receive_elements]; plan.ranks];
    let mut open: Vec<usize> = (0..plan.moves.len()).collect();
    let mut finished = vec![false; plan.moves.len()];
    while !open.is_empty() {
        let stream = |number: usize| (plan.moves[number].to.rank, plan.moves[number].channel);
        let ready: Vec<usize> = (0..open.len())
            .filter(|&position| {
                let first =
                    open[..position].iter().all(|&other| stream(other) != stream(open[position]));
                first && plan.waits[open[position]].iter().all(|&other| finished[other])
            })
            .collect();
        let number = open.remove(ready[pick(ready.len())]);
        finished[number] = true;
        let one = plan.moves[number];
        for offset in 0..one.elements {
            let from = one.from.at + offset;
            let theirs = match one.from.side {
                BufferSide::Send => value(one.from.rank, from),
                BufferSide::Receive => received[one.from.rank][from],
            };
            let mine = one.summand.map_or(0, |plus| value(one.to.rank, plus + offset));
            received[one.to.rank][one.to.at + offset] = theirs + mine;
        }
    }
    received
}

fn verify_received(plan: &CollectivePlan, received: &[Vec<u32>]) {
    for claim in &plan.expected {
        for offset in 0..claim.elements {
            let index = (claim.base + offset) as u64;
            let sources = claim.first..claim.first + claim.ranks;
            let right: u32 =
                sources.map(|rank| pattern::element_value(rank as u32, index, 7)).sum();
            let is = received[claim.rank][claim.at + offset];
            assert_eq!(is, right, "rank {}, element {}", claim.rank, claim.at + offset);
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
fn every_collective_is_right_for_1_to_16_ranks_and_odd_sizes() {
    for collective in Collective::ALL {
        for ranks in 1..=MAX_RANKS {
            for elements in [1, 7, 129, 1_000, 4_099] {
                let plan = CollectivePlan::new(collective, ranks, elements, 2);
                verify_received(&plan, &execute_plan(&plan, |_| 0));
                for rank in 0..ranks {
                    let claims = plan.expected.iter().filter(|claim| claim.rank == rank);
                    let claimed: usize = claims.map(|claim| claim.elements).sum();
                    let owed = expected_elements(collective, rank, ranks, elements);
                    assert_eq!(claimed, owed, "{collective:?} of {ranks}, rank {rank}");
                }
            }
        }
    }
}

#[test]
fn a_ring_carries_what_the_bus_bandwidth_counts() {
    for collective in Collective::ALL {
        for ranks in 2..=MAX_RANKS {
            let elements = ranks * ALIGN * 16;
            let crossing =
                CollectivePlan::new(collective, ranks, elements, 4).crossing_elements(ranks) as f64;
            let mut links = ranks as f64;
            if collective == Collective::Broadcast {
                links -= 1.0; // A chain has one link fewer than a ring.
            }
            let each = crossing / links / elements as f64;
            let factor = collective.bus_factor(ranks).unwrap();
            assert!((each - factor).abs() < 1e-9, "{collective:?} of {ranks}: {each}, {factor}");
        }
    }
}

proptest! {
    #[test]
    fn any_order_that_the_waits_allow_is_right(
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
