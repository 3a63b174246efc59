//! A fleet that is away as a whole, as behind a switch that restarts: it is one finding, and is read again soon after.

use std::time::Duration;

use gaunt_schema::{LifeState, Severity};
use tokio::time::sleep;

use crate::{
    BEGAN,
    seeded_random::SeededRandom,
    simulated_fleet::SimulatedNode,
    simulated_host::{HostFaults, SimulatedHost},
    simulated_network::SimulatedNetwork,
};

/// The number of nodes.
const FLEET: usize = 12;

/// Seconds before the outage, of it, and after it until every node must be live.
const BEFORE: u64 = 15;
const AWAY: u64 = 75;
const BACK_WITHIN: u64 = 15;

/// Seconds of the outage after which it is known.
const KNOWN_AFTER: u64 = 30;

#[tokio::test(start_paused = true)]
async fn fleet_that_was_away_for_75_seconds_is_live_within_15() {
    let booted = BEGAN - Duration::from_hours(10);
    let nodes = (0..FLEET).map(|index| SimulatedNode::new(index, booted, 0)).collect();
    let network = SimulatedNetwork::new(nodes, BEGAN, SeededRandom::new(1), None);
    network.set_faults(None);
    let faults = HostFaults {
        has_disk_faults: false,
        has_power_cuts: false,
        has_settings_faults: false,
        clock_steps: &[0],
        density: 1,
    };
    let mut host = SimulatedHost::new(&network, faults, 1, None).unwrap();
    let mut random = SeededRandom::new(2);
    let mut live = Vec::new();
    for second in 0..BEFORE + AWAY + BACK_WITHIN {
        if second == BEFORE {
            for node in 0..FLEET {
                network.cut_node(node, Duration::from_secs(AWAY));
            }
        }
        sleep(Duration::from_secs(1)).await;
        let mut broken = host.start_if_due(second, None);
        broken.extend(host.step(second, &mut random));
        assert!(broken.is_empty(), "at {second} s {broken:?}");
        let aggregator = host.aggregator.as_ref().unwrap();
        live.push(aggregator.overview().nodes.live as usize);
        if (BEFORE + KNOWN_AFTER..BEFORE + AWAY).contains(&second) {
            let list = aggregator.findings();
            let open = list.findings.iter().filter(|finding| {
                finding.severity >= Severity::Warning && finding.life.state != LifeState::Closed
            });
            let open: Vec<&str> = open.map(|finding| finding.id.as_str()).collect();
            assert_eq!(open.len(), 1, "at {second} s {open:?}");
        }
    }
    assert_eq!(live[BEFORE as usize - 1], FLEET, "{live:?}");
    assert_eq!(live[(BEFORE + KNOWN_AFTER) as usize], 0, "{live:?}");
    assert_eq!(live.last(), Some(&FLEET), "{live:?}");
}
