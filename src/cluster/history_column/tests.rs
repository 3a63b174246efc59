//! Tests of the history of a metric: it returns what a list of all points would, within its size limit.

use std::collections::BTreeMap;

use gaunt_schema::{MetricId, catalogue::gpu};
use proptest::prelude::*;

use super::*;

fn new_history(slots: usize) -> HistoryColumn {
    // Whole watts: values are restored exactly.
    HistoryColumn::new(&Metric { resolution: 1.0, ..*gpu::POWER.catalogue_row() }, slots)
}

fn write_point(history: &mut HistoryColumn, row: usize, slot: i64, value: Option<f64>) {
    history.write_point(row, slot, value, false, true);
}

/// Size of a range without points.
fn range_bytes() -> usize {
    size_of::<DeviceRange>() + size_of::<PackedBlocks>()
}

fn read_points(history: &HistoryColumn, row: usize, slot: i64) -> Vec<Option<f32>> {
    history.read_points(row, slot, usize::MAX)
}

proptest! {
    /// It returns what a list of all points would return, for every device of a range.
    #[test]
    fn history_is_the_end_of_a_list_of_all_points(
        steps in prop::collection::vec((0_i64..40, prop::collection::vec(any::<Option<u8>>(), 3)), 1..40),
        slots in prop_oneof![Just(4_usize), Just(25), Just(90)],
    ) {
        let mut history = new_history(slots);
        let (mut slot, mut lists) = (-20_i64, vec![BTreeMap::new(); 3]);
        for (step, values) in steps {
            slot += step;
            for (row, value) in values.into_iter().enumerate() {
                let value = value.map(f64::from);
                write_point(&mut history, row, slot, value);
                lists[row].insert(slot, value);
            }
            for now in slot..slot + 3 {
                for (row, list) in lists.iter().enumerate() {
                    let end: Vec<_> = (now - slots as i64 + 1..=now)
                        .map(|at| list.get(&at).copied().flatten().map(|value| value as f32))
                        .collect();
                    prop_assert_eq!(read_points(&history, row, now), end);
                }
            }
        }
    }
}

#[test]
fn history_is_bounded_and_ends_now() {
    let mut history = new_history(4);
    for slot in 0..100 {
        history.write_point(1, slot, Some(slot as f64), true, true);
    }
    assert_eq!(read_points(&history, 1, 99), [Some(96.0), Some(97.0), Some(98.0), Some(99.0)]);
    assert_eq!(history.read_points(1, 99, 2), [Some(98.0), Some(99.0)]);
    assert_eq!(read_points(&history, 1, 101), [Some(98.0), Some(99.0), None, None]);
    assert_eq!(read_points(&history, 1, 130), [None; 4]);
    assert_eq!(read_points(&history, 0, 99), [None; 4], "another device has no past");
    let max_bytes = history.open.memory_bytes() + range_bytes() + 2 * block_cost(&[0; 2 * ROWS]);
    assert!(history.open.used_slots() <= OPEN);
    assert!(history.memory_bytes() < max_bytes, "{}", history.memory_bytes());
}

#[test]
fn newest_point_is_found_within_the_given_slots_only() {
    let mut history = new_history(4);
    for slot in 0..6 {
        write_point(&mut history, 1, slot, (slot != 4).then_some(slot as f64));
    }
    assert_eq!(history.newest_point(1, 4, 3), Some(3.0));
    assert_eq!(history.newest_point(1, 4, 1), None);
    assert_eq!(history.newest_point(1, 5, 1), Some(5.0));
    assert_eq!(history.newest_point(0, 5, 3), None);
    assert_eq!(history.newest_point(77, 5, 3), None);
}

#[test]
fn missing_sample_is_a_gap_and_never_zero() {
    let mut history = new_history(4);
    write_point(&mut history, 0, 5, Some(1.0));
    write_point(&mut history, 0, 7, Some(3.0));
    history.write_point(0, 8, None, true, true);
    assert_eq!(read_points(&history, 0, 8), [Some(1.0), None, Some(3.0), None]);
    history.write_point(0, 9, Some(4.0), true, true);
    assert_eq!(
        read_points(&history, 0, 9),
        [None, Some(3.0), None, Some(4.0)],
        "known to be absent"
    );
    write_point(&mut history, 0, 1_000_000, Some(9.0));
    assert_eq!(read_points(&history, 0, 1_000_000), [None, None, None, Some(9.0)]);
}

#[test]
fn jitter_at_the_border_of_two_slots_makes_no_gap() {
    for start in 0..40 {
        let mut history = new_history(4);
        write_point(&mut history, 0, start, Some(1.0));
        history.write_point(0, start + 2, Some(3.0), true, true);
        history.write_point(0, start + 2, Some(4.0), true, true);
        let expected = [None, Some(1.0), Some(3.0), Some(4.0)];
        assert_eq!(read_points(&history, 0, start + 2), expected, "from {start}");
    }
}

#[test]
fn point_read_late_in_a_period_leaves_no_gap() {
    let mut history = new_history(30);
    for slot in 0..30 {
        write_point(&mut history, 0, slot, Some(slot as f64));
        if slot > 0 {
            write_point(&mut history, 1, slot - 1, Some(slot as f64));
        }
    }
    assert!(
        read_points(&history, 1, 28)[2..].iter().all(Option::is_some),
        "{:?}",
        read_points(&history, 1, 28)
    );
}

#[test]
fn forgotten_device_leaves_no_points_to_the_next() {
    let mut history = new_history(40);
    for slot in 0..35 {
        write_point(&mut history, 0, slot, Some(1.0));
        write_point(&mut history, 1, slot, Some(1.0));
    }
    history.clear(0);
    assert_eq!(read_points(&history, 0, 34), [None; 40]);
    assert_eq!(read_points(&history, 1, 34).iter().flatten().count(), 35);
    history.write_point(0, 35, Some(2.0), true, true);
    let past = read_points(&history, 0, 35);
    assert_eq!((past.iter().flatten().count(), past[39]), (1, Some(2.0)));
    for slot in 36..200 {
        write_point(&mut history, 0, slot, Some(3.0));
    }
    assert_eq!(read_points(&history, 0, 199), [Some(3.0); 40]);
    assert!(history.packed[0].forgotten.is_empty());
}

#[test]
fn oldest_points_are_evicted_first_and_memory_is_counted() {
    let mut history = new_history(1_000);
    for slot in 0..500 {
        for row in 0..130 {
            write_point(&mut history, row, slot, Some(((slot * 31 + row as i64 * 17) % 97) as f64));
        }
    }
    let bytes = history.memory_bytes();
    let blocks = history.packed.iter().flat_map(|packed| &packed.blocks);
    let packed: usize = blocks.map(|(_, block)| block_cost(block)).sum();
    assert_eq!(bytes, packed + history.open.memory_bytes() + 3 * range_bytes());
    assert_eq!(history.open.used_slots(), 10 + 9 + 8, "neighbours are packed one after the other");
    let points = 130 * 490;
    assert!(packed < points * 13 / 10, "{packed} bytes for {points} points");
    assert_eq!(history.oldest_end(), Some(1), "the second range began with a part of a block");
    history.evict_before(100);
    assert_eq!(history.oldest_end(), Some(101));
    assert!(history.memory_bytes() < bytes * 9 / 10);
    let past = read_points(&history, 129, 499);
    assert_eq!(past.iter().flatten().count(), 500 - 92);
}

#[test]
fn devices_get_no_history_over_the_limit_and_keep_what_they_have() {
    let mut history = new_history(20);
    write_point(&mut history, 0, 5, Some(1.0));
    history.write_point(500, 5, Some(1.0), false, false);
    history.write_point(1, 5, Some(1.0), false, false);
    assert_eq!(read_points(&history, 500, 5), [None; 20]);
    assert_eq!(read_points(&history, 1, 5).last(), Some(&Some(1.0)));
    let bytes = history.memory_bytes();
    write_point(&mut history, 3 * ROWS, 5, Some(1.0));
    assert_eq!(history.memory_bytes(), bytes + 3 * range_bytes(), "its points find room");
    history.write_point(2 * ROWS, 5, Some(1.0), false, false);
    assert_eq!(
        read_points(&history, 2 * ROWS, 5),
        [None; 20],
        "its range stands, and nobody has a past"
    );
}

#[test]
fn rate_is_stored_within_a_thousandth_of_any_size() {
    let counter = MetricId::all_ids()
        .find(|id| matches!(id.catalogue_row().kind, MetricKind::Counter(_)))
        .unwrap();
    let mut history = HistoryColumn::new(counter.catalogue_row(), 50);
    let rate = |slot: i64| 4.7e10 + slot as f64 * 1.3e9;
    for slot in 0..50 {
        write_point(&mut history, 0, slot, Some(rate(slot)));
        write_point(&mut history, 1, slot, Some(slot as f64 / 64.0));
    }
    for (row, exact_rate) in [(0, &rate as &dyn Fn(i64) -> f64), (1, &|slot| slot as f64 / 64.0)] {
        for (slot, point) in read_points(&history, row, 49).into_iter().enumerate() {
            let (point, exact) = (f64::from(point.unwrap()), exact_rate(slot as i64));
            assert!((point - exact).abs() <= exact.abs() * 1e-3, "{point} {exact}");
        }
    }
}

/// Devices of different ranges are packed at different times, and read alike.
#[test]
fn devices_of_all_ranges_have_the_same_history() {
    let rows = [0, ROWS - 1, ROWS, 5 * ROWS, 9 * ROWS + 3, 10 * ROWS, 13 * ROWS];
    let mut history = new_history(90);
    for slot in -40_i64..250 {
        let has_value = |slot: i64| slot.rem_euclid(17) > 2 && !(100..130).contains(&slot);
        for row in rows {
            write_point(&mut history, row, slot, has_value(slot).then_some(slot as f64));
        }
        let first = slot - 89;
        let expected = (first..=slot).map(|slot| has_value(slot).then_some(slot as f32));
        let expected: Vec<_> = expected
            .zip(first..)
            .map(|(point, slot_of_point)| point.filter(|_| slot_of_point >= -40))
            .collect();
        for row in rows {
            assert_eq!(read_points(&history, row, slot), expected, "row {row} at {slot}");
        }
    }
}

/// Released memory is reused: a device that disappears and returns takes as much as before.
#[test]
fn released_memory_is_used_again() {
    let mut history = new_history(20);
    let mut sizes = Vec::new();
    for round in 0..5_i64 {
        for slot in 0..200 {
            write_point(&mut history, 0, round * 100_000 + slot, (slot > 100).then_some(1.0));
        }
        sizes.push(history.memory_bytes());
    }
    assert_eq!(sizes, [sizes[0]; 5]);
}
