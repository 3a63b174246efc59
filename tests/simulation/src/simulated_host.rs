//! One machine with an aggregator: its disk, the store that it writes to, and what must hold there.

use crate::{
    STATE,
    deliberate_bug::DeliberateBug,
    invariants::{Invariants, check_recovered},
    seeded_random::SeededRandom,
    simulated_aggregator::{AggregatorSurroundings, SimulatedAggregator},
    simulated_disk::{ALL, SimulatedDisk},
    simulated_network::SimulatedNetwork,
    simulated_recording::RecordingModel,
    simulated_store::{SimulatedStore, StoreModel},
};

/// Seconds between two writes of the state, as in the program.
const SAVE_EVERY: u64 = 5;

/// The faults that a machine has in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFaults {
    /// Operations of the disk fail, and the power is lost.
    pub(crate) has_disk_faults: bool,
    /// Its clock is set at a restart to one of these offsets, in milliseconds.
    pub(crate) clock_steps: &'static [i64],
}

/// One machine.
pub(crate) struct SimulatedHost {
    surroundings: AggregatorSurroundings,
    faults: HostFaults,
    recording: RecordingModel,
    steps: StoreModel,
    pub(crate) invariants: Invariants,
    /// The process, while it runs.
    pub(crate) aggregator: Option<SimulatedAggregator>,
    /// The second at which a killed process starts again.
    starts_at: u64,
    /// How far its clock is ahead of the true time.
    ahead_ms: i64,
    ends: u64,
}

impl SimulatedHost {
    pub(crate) fn new(
        network: &SimulatedNetwork,
        faults: HostFaults,
        seed: u64,
        bug: Option<DeliberateBug>,
    ) -> Self {
        Self {
            surroundings: AggregatorSurroundings {
                disk: SimulatedDisk::with_bug(bug),
                network: network.clone(),
                store: SimulatedStore::new(SeededRandom::new(seed ^ 0x5704e)),
                bug,
            },
            faults,
            recording: RecordingModel::new(seed % 2 == 1),
            steps: StoreModel::default(),
            invariants: Invariants::default(),
            aggregator: None,
            starts_at: 0,
            ahead_ms: 0,
            ends: 0,
        }
    }

    /// The number of faults so far.
    pub(crate) fn fault_count(&self) -> u64 {
        let AggregatorSurroundings { disk, store, .. } = &self.surroundings;
        self.ends + disk.failure_count() + store.fault_count()
    }

    /// Ends all faults.
    pub(crate) fn repair(&mut self) {
        self.surroundings.disk.repair();
        self.surroundings.store.repair();
    }

    /// Draws the faults of a second: operations of the disk that fail, and the end of the process.
    pub(crate) fn draw_faults(&mut self, second: u64, random: &mut SeededRandom) -> Vec<String> {
        if random.once_in(12) && self.faults.has_disk_faults {
            let count = [ALL, 1, 1, 3, 20][random.below(5) as usize];
            self.surroundings.disk.fail_in(random.below(12), count);
        }
        if random.once_in(45) && self.aggregator.take().is_some() {
            let power = self.faults.has_disk_faults && random.once_in(2);
            return self.end(second, power, random);
        }
        Vec::new()
    }

    /// Starts the process if it is time, with what a peer knows; returns what does not hold.
    pub(crate) fn start_if_due(
        &mut self,
        second: u64,
        peer: Option<&SimulatedAggregator>,
    ) -> Vec<String> {
        if self.aggregator.is_some() || second < self.starts_at {
            return Vec::new();
        }
        self.invariants.note_start();
        let around = &self.surroundings;
        match SimulatedAggregator::start(around, &self.recording, self.ahead_ms, peer) {
            Ok(aggregator) => {
                // What a peer knows to have ended need not be there.
                let broken = match peer {
                    None => self.invariants.check_restored(&aggregator),
                    Some(_) => Vec::new(),
                };
                self.aggregator = Some(aggregator);
                broken
            }
            Err(error) => {
                // A disk that fails now is tried again, as the service manager does.
                self.starts_at = second + 1;
                let is_disk = around.disk.failure_count() > 0;
                (!is_disk).then(|| format!("cannot start: {error}")).into_iter().collect()
            }
        }
    }

    /// Stops the process as a service manager does, for so many seconds.
    #[cfg(test)]
    pub(crate) fn stop(&mut self, second: u64, lasts: u64) {
        if let Some(mut aggregator) = self.aggregator.take() {
            aggregator.save(true);
            self.steps.note_kill();
            self.starts_at = second + lasts;
        }
    }

    /// A second of the process; returns what does not hold.
    pub(crate) fn step(&mut self, second: u64, random: &mut SeededRandom) -> Vec<String> {
        let Some(mut aggregator) = self.aggregator.take() else { return Vec::new() };
        let AggregatorSurroundings { disk, store, network, .. } = &self.surroundings;
        let mut broken = aggregator.tick(disk, &mut self.recording, &mut self.steps);
        if second.is_multiple_of(SAVE_EVERY) {
            aggregator.save(false);
        }
        let files = disk.files_of(STATE).0.len();
        broken.extend(self.invariants.check(&aggregator, network, files));
        broken.extend(StoreModel::check_files(disk));
        broken.extend(store.take_broken());
        if disk.is_gone() {
            // The process ended in the middle of a write, here with the power.
            drop(aggregator);
            broken.extend(self.end(second, true, random));
        } else {
            self.aggregator = Some(aggregator);
        }
        broken
    }

    /// The process has ended, with or without a loss of power; it starts again later, perhaps with another clock. Returns
    /// what does not hold of what it left.
    fn end(&mut self, second: u64, power: bool, random: &mut SeededRandom) -> Vec<String> {
        let disk = &self.surroundings.disk;
        self.ends += 1;
        self.steps.note_kill();
        if power {
            disk.cut_power(random);
        }
        disk.repair();
        let broken = self.recording.check_read(disk, power);
        if power {
            self.recording.note_power_cut(disk);
        }
        self.starts_at = second + 1 + random.below(8);
        if random.once_in(3) {
            let steps = self.faults.clock_steps;
            self.ahead_ms = steps[random.below(steps.len() as u64) as usize];
        }
        broken
    }

    /// What must hold once all faults are over for a while, `is_long` if it is long enough for every finding to close. The
    /// process ends.
    pub(crate) fn check_end(&mut self, is_long: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let Some(aggregator) = self.aggregator.take() else {
            return vec!["no process runs".to_owned()];
        };
        broken.extend(check_recovered(&aggregator, is_long));
        drop(aggregator);
        let AggregatorSurroundings { disk, store, .. } = &self.surroundings;
        broken.extend(self.recording.check_read(disk, false));
        if !self.faults.has_disk_faults {
            broken.extend(self.steps.check_stored(store));
        }
        broken
    }
}
