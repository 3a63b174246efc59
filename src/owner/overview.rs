//! The overview: one pass over the fleet, once a tick.

use std::collections::BTreeSet;

use gaunt_schema::{Class, GpuState, Safe};

use super::{
    Owner, Picture,
    lost::{self, Ledger},
    nodes::Badness,
};
use crate::{
    answer::{Heat, Lost, NodeCounts, NodeState, Overview, StateCount},
    cluster::{NodeId, Standing},
    judge,
};

/// Findings in the overview: more than any screen shows at once.
const MAX_FINDINGS: usize = 32;

/// Nodes in the overview: more than any screen shows at once.
const MAX_WORST: usize = 32;

/// Sentences about the recording, about sources of targets, and about targets, in the overview.
const MAX_TROUBLE: usize = 8;

impl Owner {
    /// The overview of what is known and judged now; `self.findings` must be those of now.
    pub(super) fn picture(&self) -> Picture {
        let mut ledger = self.ledger.clone();
        Picture { overview: self.overview(&mut ledger), ledger }
    }

    fn overview(&self, ledger: &mut Ledger) -> Overview {
        let blamed = self.blamed();
        let (mut heat, mut nodes) = (Heat::default(), self.pending_and_down());
        let mut states = vec![0_u32; GpuState::ALL.len()];
        let mut worst: Vec<(Badness, NodeId)> = Vec::new();
        for (id, node) in self.cluster.nodes() {
            match self.state(node) {
                NodeState::Live => nodes.live += 1,
                NodeState::Stale => nodes.stale += 1,
                NodeState::Down => nodes.down += 1,
            }
            let gpus = node.rows(Class::Gpu);
            if !gpus.is_empty() {
                heat.nodes.push(node.name.clone());
                heat.gpus.push(gpus.len() as u16);
            }
            for row in gpus {
                let state = self.state_of(*row);
                heat.states.push(state.code());
                states[state as usize] += 1;
            }
            worst.push((self.badness(node, &blamed), id));
        }
        if worst.len() > MAX_WORST {
            worst.select_nth_unstable(MAX_WORST);
            worst.truncate(MAX_WORST);
        }
        worst.sort_unstable();
        let counts = GpuState::ALL.iter().map(|state| (*state, states[*state as usize]));
        let states: Vec<_> = counts
            .filter(|(_, gpus)| *gpus > 0)
            .map(|(state, gpus)| StateCount { state, gpus })
            .collect();
        Overview {
            cluster: self.options.cluster.clone(),
            at: self.cluster.now(),
            period_ms: self.cluster.period().as_millis() as u64,
            nodes,
            lost: self.lost_now(&states, ledger),
            states,
            findings_open: self.findings.findings.len() as u32,
            findings: self.findings.findings.iter().take(MAX_FINDINGS).cloned().collect(),
            heat,
            worst: self.lines(worst.into_iter().map(|(_, id)| id), &blamed),
            trouble: self.trouble(),
        }
    }

    /// Targets that no node can be counted for: not tried, not known, or named by the operator and never reached.
    fn pending_and_down(&self) -> NodeCounts {
        let (mut counts, mut unreached) = (NodeCounts::default(), BTreeSet::new());
        for target in self.cluster.targets().iter().filter(|target| target.node.is_none()) {
            match (target.standing, &target.target.node) {
                (Standing::Live, _) => {}
                (Standing::Down, Some(name)) => {
                    if self.cluster.named(name).is_none() {
                        unreached.insert(name);
                    }
                }
                (Standing::Down, None) | (Standing::Pending, _) => counts.pending += 1,
            }
        }
        counts.down = unreached.len() as u32;
        counts
    }

    fn lost_now(&self, states: &[StateCount], ledger: &mut Ledger) -> Lost {
        let gpus_in = |wanted: fn(GpuState) -> bool| -> u32 {
            states.iter().filter(|count| wanted(count.state)).map(|count| count.gpus).sum()
        };
        let known = gpus_in(|state| !matches!(state, GpuState::Stale | GpuState::Unknown));
        let gpus = f64::from(gpus_in(GpuState::is_lost_time));
        ledger.note(self.cluster.now(), (known > 0).then_some(gpus));
        Lost {
            gpus,
            cost_per_hour: self.options.price_per_gpu_hour.map(|price| price * gpus),
            currency: self.options.currency.clone(),
            history: ledger.history(),
            history_step_ms: lost::STEP.as_millis() as u64,
        }
    }

    fn trouble(&self) -> Vec<Safe> {
        let keeping = self.cluster.keeping().and_then(|keeping| keeping.trouble.clone());
        let sources = self.cluster.sources().iter().filter_map(|source| source.trouble.clone());
        let targets = self.cluster.targets().iter().filter_map(judge::trouble);
        keeping.into_iter().chain(sources).chain(targets).take(MAX_TROUBLE).collect()
    }
}
