//! One machine with an aggregator: its disk, the store that it writes to, and what must hold there.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gaunt_engine::state_store::StateStore;

use crate::{
    STATE,
    deliberate_bug::DeliberateBug,
    invariants::{Invariants, check_recovered},
    seeded_random::SeededRandom,
    simulated_aggregator::{AggregatorSurroundings, SimulatedAggregator, scrape_plan},
    simulated_disk::{ALL, SimulatedDisk},
    simulated_network::SimulatedNetwork,
    simulated_recording::RecordingModel,
    simulated_sources::SimulatedSources,
    simulated_store::{SimulatedStore, StoreModel},
};

/// Seconds between two writes of the state, as in the program.
const SAVE_EVERY: u64 = 5;

/// Where a file of the state has its version, and that of a newer gaunt.
const STATE_VERSION: Range<usize> = 8..12;
const NEWER_VERSION: u32 = 2;

/// The longest time for which an operation of the disk does not return, in seconds.
const LONGEST_HANG: u64 = 60;

/// The faults that a machine has in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFaults {
    /// Operations of the disk fail or hang.
    pub(crate) has_disk_faults: bool,
    /// The power is lost.
    pub(crate) has_power_cuts: bool,
    /// Nodes have sources, formats and transports of their own, whose files are damaged, and settings are reloaded; else all
    /// nodes are in one list.
    pub(crate) has_settings_faults: bool,
    /// Its clock is set at a restart to one of these offsets, in milliseconds.
    pub(crate) clock_steps: &'static [i64],
    /// How many times as frequent as in a long run they are.
    pub(crate) density: u64,
}

/// One machine.
pub(crate) struct SimulatedHost {
    surroundings: AggregatorSurroundings,
    faults: HostFaults,
    /// The files of its settings, if it has faults of settings.
    sources: Option<SimulatedSources>,
    recording: RecordingModel,
    steps: StoreModel,
    pub(crate) invariants: Invariants,
    /// The process, while it runs.
    pub(crate) aggregator: Option<SimulatedAggregator>,
    /// The second at which a killed process starts again.
    starts_at: u64,
    /// How far its clock is ahead of the true time.
    ahead_ms: i64,
    /// Whether its clock was ever set.
    was_clock_set: bool,
    /// Files of the state that another version of gaunt wrote: they stay as they are.
    foreign: BTreeMap<PathBuf, Vec<u8>>,
    ends: u64,
}

impl SimulatedHost {
    pub(crate) fn new(
        network: &SimulatedNetwork,
        faults: HostFaults,
        seed: u64,
        bug: Option<DeliberateBug>,
    ) -> io::Result<Self> {
        Ok(Self {
            surroundings: AggregatorSurroundings {
                disk: SimulatedDisk::with_bug(bug),
                network: network.clone(),
                store: SimulatedStore::new(SeededRandom::new(seed ^ 0x5704e), bug),
                bug,
            },
            faults,
            sources: faults.has_settings_faults.then(|| SimulatedSources::new(seed)).transpose()?,
            recording: RecordingModel::new(seed % 2 == 1),
            steps: StoreModel::default(),
            invariants: Invariants::default(),
            aggregator: None,
            starts_at: 0,
            ahead_ms: 0,
            was_clock_set: false,
            foreign: BTreeMap::new(),
            ends: 0,
        })
    }

    /// The number of faults so far.
    pub(crate) fn fault_count(&self) -> u64 {
        let AggregatorSurroundings { disk, store, .. } = &self.surroundings;
        self.ends
            + disk.failure_count()
            + disk.hang_count()
            + store.fault_count()
            + self.sources.as_ref().map_or(0, SimulatedSources::fault_count)
    }

    /// How often its process has ended.
    pub(crate) fn end_count(&self) -> u64 {
        self.ends
    }

    /// The bytes of memory that its disk takes.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.surroundings.disk.memory_bytes()
    }

    /// A hash of all operations of its disk.
    pub(crate) fn disk_trace(&self) -> u64 {
        self.surroundings.disk.trace()
    }

    /// Ends all faults of disk and store.
    pub(crate) fn repair(&mut self) {
        self.surroundings.disk.repair();
        self.surroundings.store.repair();
    }

    /// Reloads the settings now and then; without faults they are in the end those of all nodes.
    pub(crate) async fn reload_settings(&mut self, is_faulty: bool) -> io::Result<()> {
        if let (Some(aggregator), Some(sources)) = (&self.aggregator, &mut self.sources)
            && let Some(plan) = sources.draw_reload(is_faulty)?
        {
            aggregator.reload(plan).await;
        }
        Ok(())
    }

    /// Damages files of targets and secrets now and then; without faults all are whole.
    pub(crate) fn change_files(&mut self, second: u64, is_faulty: bool) -> io::Result<()> {
        match &mut self.sources {
            Some(sources) if is_faulty => sources.draw_faults(second),
            Some(sources) => sources.repair(),
            None => Ok(()),
        }
    }

    /// Draws the faults of a second: operations of the disk that fail, and the end of the process.
    pub(crate) fn draw_faults(&mut self, second: u64, random: &mut SeededRandom) -> Vec<String> {
        let density = self.faults.density;
        if random.once_in(12 / density) && self.faults.has_disk_faults {
            let count = [ALL, 1, 1, 3, 20][random.below(5) as usize];
            self.surroundings.disk.fail_in(random.below(12), count);
        }
        if random.once_in(50 / density) && self.faults.has_disk_faults {
            let lasts = Duration::from_secs(random.below(LONGEST_HANG));
            self.surroundings.disk.hang_in(random.below(12), lasts);
        }
        if random.once_in(45 / density) && self.aggregator.take().is_some() {
            let power = self.faults.has_power_cuts && random.once_in(2);
            return self.end(second, power, random);
        }
        let is_hung = self.surroundings.disk.hung_for().is_some();
        if random.once_in(40 / density) && self.aggregator.is_some() && !is_hung {
            // Somebody starts a second process by mistake.
            let disk = Arc::new(self.surroundings.disk.clone());
            if StateStore::open_on_disk(disk, Path::new(STATE)).is_ok() {
                return vec!["two processes have one state".to_owned()];
            }
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
        around.disk.end_process();
        let plan = match &mut self.sources {
            Some(sources) => sources.draw_plan(),
            None => Ok(scrape_plan(around.network.node_count())),
        };
        let started = plan.map_err(|error| error.to_string()).and_then(|plan| {
            SimulatedAggregator::start(around, &self.recording, plan, self.ahead_ms, peer)
        });
        match started {
            Ok(_) if around.disk.hung_for().is_some() => {
                // A start that hangs is ended by the service manager.
                self.starts_at = second + 1;
                Vec::new()
            }
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
        let mut foreign = self.foreign.iter();
        if let Some((path, _)) = foreign.find(|(path, content)| disk.content_of(path) != **content)
        {
            broken.push(format!("{} of another version is changed", path.display()));
        }
        broken.extend(self.invariants.check(&aggregator, network, files));
        broken.extend(disk.hung_for().and_then(|lasts| aggregator.check_hang_is_shown(lasts)));
        broken.extend(StoreModel::check_files(disk));
        broken.extend(store.take_broken());
        broken.extend(network.take_broken());
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
        if power {
            self.steps.note_power_cut();
        }
        self.steps.note_kill();
        // What was not written because an operation hangs is lost, too.
        let is_behind = power || disk.hung_for().is_some();
        disk.end_process();
        if power {
            disk.cut_power(random);
        }
        disk.repair();
        let mut broken = self.recording.check_read(disk, is_behind);
        if is_behind {
            self.recording.note_power_cut(disk);
        }
        if self.faults.has_disk_faults && random.once_in(4) {
            broken.extend(self.recording.flip_bit(disk, random));
        }
        if self.faults.has_disk_faults && random.once_in(4) {
            self.change_state(random);
        }
        self.starts_at = second + 1 + random.below(8);
        if random.once_in(3) {
            let steps = self.faults.clock_steps;
            self.ahead_ms = steps[random.below(steps.len() as u64) as usize];
            self.was_clock_set |= self.ahead_ms != 0;
        }
        broken
    }

    /// A bit of the saved state flips, or a newer gaunt has run meanwhile and written a file in its own format.
    fn change_state(&mut self, random: &mut SeededRandom) {
        let disk = &self.surroundings.disk;
        let (mut files, _) = disk.files_of(STATE);
        let own =
            |path: &PathBuf| path.extension().is_some_and(|it| it == "gaunt" || it == "version1");
        files.retain(|path| own(path) && !self.foreign.contains_key(path));
        let chosen = random.below(files.len().max(1) as u64) as usize;
        let Some(path) = files.into_iter().nth(chosen) else { return };
        let mut content = disk.content_of(&path);
        match content.get_mut(STATE_VERSION) {
            Some(version)
                if random.once_in(2) && path.extension().is_some_and(|it| it == "gaunt") =>
            {
                version.copy_from_slice(&NEWER_VERSION.to_le_bytes());
                self.foreign.insert(path.clone(), content.clone());
                disk.replace_content(&path, content);
            }
            _ => drop(disk.flip_bit(&path, random)),
        }
        self.invariants.forget_all();
    }

    /// Whether everything that must hold once all faults are over for a while holds, but what is read at the end.
    pub(crate) fn has_recovered(&self) -> bool {
        let Some(aggregator) = &self.aggregator else { return false };
        let has_steps = || self.steps.check_stored(&self.surroundings.store).is_empty();
        let trouble = &aggregator.overview().trouble;
        !trouble.iter().any(|it| it.starts_with("recording"))
            && check_recovered(aggregator, false).is_empty()
            && (self.faults.has_disk_faults || has_steps())
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
        if !self.was_clock_set {
            let replayed =
                RecordingModel::check_replay(disk, self.surroundings.network.node_count());
            broken.extend(replayed.err());
        }
        if !self.faults.has_disk_faults {
            broken.extend(self.steps.check_stored(store));
        }
        broken
    }
}
