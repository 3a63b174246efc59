//! Job timelines: the states of a job's GPUs over the last minutes, outliers first.

use gaunt_schema::{DeviceClass, GpuState};

use super::{snapshot_history::TickSnapshot, view::View};
use gaunt_api::{GpuTimeline, JobTimeline, StateTime};
use gaunt_judge::gpus_of_parts;

/// Points of a timeline: as many as a screen has columns for.
const POINTS: usize = 120;

/// Maximum number of timelines of one job: more than any screen shows at once.
const STRIPS: usize = 128;

/// The longest time that one snapshot covers: a gap in the snapshot history is not counted as loss.
const LONGEST_MS: f64 = 15_000.0;

const HOUR_MS: f64 = 3.6e6;

impl View<'_> {
    /// The recent states of these GPUs.
    pub(super) fn job_timeline(&self, gpus: &[u32]) -> JobTimeline {
        let now = self.at;
        let snapshots: Vec<&TickSnapshot> = self.snapshots.snapshots_until(now).collect();
        let near = &snapshots[snapshots.len().saturating_sub(POINTS)..];
        let span = |of: &[&TickSnapshot]| {
            of.first().map_or(0, |first| now.duration_since(first.at).as_millis())
        };
        let most: Vec<GpuState> =
            near.iter().map(|snapshot| most_common_state(snapshot, gpus)).collect();
        let mut odd: Vec<(usize, u32)> =
            gpus.iter().map(|gpu| (count_differing(near, &most, *gpu), *gpu)).collect();
        // GPUs with equal counts keep their order.
        odd.sort_by_key(|(differs, _)| std::cmp::Reverse(*differs));
        odd.truncate(STRIPS);
        let strips =
            odd.iter().filter_map(|(differs, gpu)| self.gpu_timeline(near, *gpu, *differs));
        JobTimeline {
            step_ms: span(near) as u64 / (near.len().max(2) as u64 - 1),
            most: most.iter().map(|state| state.letter_code()).collect(),
            strips: strips.collect(),
            span_ms: span(&snapshots) as u64,
            lost: lost_time_by_state(&snapshots, gpus),
        }
    }

    fn gpu_timeline(
        &self,
        snapshots: &[&TickSnapshot],
        gpu: u32,
        differs: usize,
    ) -> Option<GpuTimeline> {
        let entry = self.cluster.device_at(DeviceClass::Gpu, gpu)?;
        Some(GpuTimeline {
            node: self.cluster.node_by_id(entry.node)?.name.clone(),
            gpu: entry.device.key.first()?.clone(),
            states: snapshots
                .iter()
                .map(|snapshot| snapshot.gpu_state(gpu).letter_code())
                .collect(),
            odd_ratio: differs as f64 / snapshots.len().max(1) as f64,
        })
    }
}

/// How often the state of a GPU differed from that of most.
fn count_differing(snapshots: &[&TickSnapshot], most: &[GpuState], gpu: u32) -> usize {
    let pairs = snapshots.iter().zip(most);
    // An unknown state does not differ.
    let odd = |state: GpuState, most: GpuState| {
        state != most && !matches!(state, GpuState::Stale | GpuState::Unknown)
    };
    pairs.filter(|(snapshot, most)| odd(snapshot.gpu_state(gpu), **most)).count()
}

/// The most common state of the GPUs; of two equally common ones the first in the order of states.
fn most_common_state(snapshot: &TickSnapshot, gpus: &[u32]) -> GpuState {
    let mut counts = [0_u32; GpuState::ALL.len()];
    for gpu in gpus {
        counts[snapshot.gpu_state(*gpu) as usize] += 1;
    }
    let most = GpuState::ALL.iter().rev().max_by_key(|state| counts[**state as usize]);
    most.copied().unwrap_or(GpuState::Unknown)
}

/// Lost GPU time by state, the largest first: each snapshot covers the time since the one before.
fn lost_time_by_state(snapshots: &[&TickSnapshot], gpus: &[u32]) -> Vec<StateTime> {
    let mut spent = [0.0; GpuState::ALL.len()];
    for pair in snapshots.windows(2) {
        let span = (pair[1].at.duration_since(pair[0].at).as_millis() as f64).min(LONGEST_MS);
        for gpu in gpus {
            let lost = gpus_of_parts(u64::from(pair[1].lost_parts(*gpu)));
            spent[pair[1].gpu_state(*gpu) as usize] += lost * span / HOUR_MS;
        }
    }
    let mut lost: Vec<StateTime> = GpuState::ALL
        .iter()
        .map(|state| StateTime { state: *state, gpu_hours: spent[*state as usize] })
        .filter(|time| time.gpu_hours > 0.0)
        .collect();
    lost.sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours));
    lost
}
