//! The pages of drawn worlds with their own physics.

use std::collections::HashMap;

use gaunt_schema::text::{PageLimits, decode_page};

use super::{ExporterPages, tests::counters_of_page};
use crate::{
    draw::{FAMILIES, WorldCase, draw_world},
    physics::RatePhysics,
    random::RandomKey,
};

/// Targets of a world that are looked at.
const TARGETS: usize = 4;

/// Seconds of each run.
const RUN_S: u32 = 70;

#[test]
fn pages_of_drawn_worlds_decode_and_their_counters_grow() {
    for family in &FAMILIES {
        let case = WorldCase::Fault { kind: None, loss: None, course: None, second: false };
        let world = draw_world(family.name, 3, case).unwrap();
        let key = RandomKey::new(world.seed);
        let mut physics = RatePhysics::new(&world.cluster, &world.faults, key).unwrap();
        let mut pages = ExporterPages::new(&world, key);
        let count = pages.targets().len().min(TARGETS);
        let mut due: Vec<_> = (0..count).map(|target| pages.due_at(target, 0.0)).collect();
        let mut last: HashMap<(usize, String), f64> = HashMap::new();
        let mut decoded = 0;
        for t_s in (0..RUN_S).map(f64::from) {
            physics.advance_to(t_s);
            for (target, due) in due.iter_mut().enumerate() {
                let node = pages.targets()[target].node;
                pages.observe(t_s, node, physics.node_state(node));
                if *due > t_s {
                    continue;
                }
                *due = pages.due_at(target, t_s);
                let Some(page) = pages.scrape(t_s, target, physics.node_state(node)) else {
                    continue;
                };
                decoded += 1;
                let rejected =
                    decode_page(page.as_bytes(), &PageLimits::default()).unwrap().rejected;
                assert_eq!(rejected.total_count(), 0, "{} {rejected:?}", family.name);
                let names = &world.exporters.nodes[node];
                let has_restarted = names.restarts_s.iter().any(|at| *at <= t_s);
                for (series, value) in counters_of_page(&page) {
                    let before = last.insert((target, series.clone()), value).unwrap_or(value);
                    let is_wrap = before > 4e9 && value < before - 4e9;
                    assert!(
                        value >= before || is_wrap || has_restarted,
                        "{} {series} {before} {value}",
                        family.name
                    );
                }
            }
        }
        assert!(decoded > 0, "{}", family.name);
    }
}
