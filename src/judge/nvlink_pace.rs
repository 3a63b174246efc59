//! NVLink pace: each step of a job moves the same bytes between its GPUs, which are counted, while their activity may be
//! known from instants only. It also tells the pace of a job on one node, which sends nothing over its ports.

use gaunt_cluster::Cluster;
use gaunt_schema::{UnixMs, catalogue::gpu_health};
use serde::{Deserialize, Serialize};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    gpu_tracker::GpuTracker,
    job_group::JobGroup,
    moving_average::CompactTimestamp,
    shift_detector::ShiftDetector,
};

/// Rounds in a row in which the sum must rise to be taken for one that only rises: some exporters count the bytes, others
/// state their rate under the same name.
const COUNTED_ROUNDS: u8 = 4;

/// Bytes per second of a GPU from which they are those of a job.
const LEAST_RATE: f64 = 1e6;

/// What is known of a round.
#[derive(Clone, Copy)]
pub(super) struct NvlinkRound<'a> {
    pub(super) limits: &'a Thresholds,
    /// Rounds are rarer than averages reach back.
    pub(super) rare: bool,
    /// An open finding blames what slows the job.
    pub(super) frozen: bool,
}

/// The pace of a job by what its GPUs move over NVLink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NvlinkPace {
    usual: Baseline,
    /// Whether they move less than usual.
    less: ShiftDetector,
    /// The pace in the last round relative to the usual one, and when that was.
    pace: Option<f32>,
    at: UnixMs,
    #[serde(skip)]
    earlier: Option<NvlinkSum>,
    #[serde(skip)]
    rises: u8,
    /// The sum fell: it is a rate.
    is_rate: bool,
}

/// What the GPUs of a job report at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NvlinkSum {
    at: UnixMs,
    gpus: usize,
    sum: f64,
}

impl NvlinkPace {
    /// Adds what the GPUs of a job moved in a round.
    pub(super) fn add_round(
        &mut self,
        cluster: &Cluster,
        group: &JobGroup,
        gpus: &[GpuTracker],
        round: NvlinkRound<'_>,
    ) {
        let rate = self.job_rate(cluster, group, gpus);
        self.at = cluster.now();
        let moment = SampleMoment { at: CompactTimestamp::of(self.at), frozen: round.frozen };
        self.usual.learn_value(rate, moment, WorseDirection::Lower, LEAST_RATE, round.limits);
        let usual = self.usual.usual_value().filter(|usual| *usual >= LEAST_RATE);
        let pace = rate.zip(usual).map(|(rate, usual)| rate / usual);
        if let Some(pace) = pace {
            self.less.add_value(1.0 - pace, round.limits.shift_floor_ratio, round.rare);
        }
        self.pace = pace.map(|pace| pace as f32);
    }

    /// Returns the bytes per second that they move, all together.
    fn job_rate(
        &mut self,
        cluster: &Cluster,
        group: &JobGroup,
        gpus: &[GpuTracker],
    ) -> Option<f64> {
        let stated = |row: &u32| cluster.current_value(gpu_health::NVLINK_RATE, *row);
        let Some(now) = NvlinkSum::of(cluster.now(), group, stated) else {
            let (now, gap) = (cluster.now(), cluster.freshness_window());
            let counted = |row: &u32| gpus.get(*row as usize)?.averages.nvlink_rate(now, gap);
            return NvlinkSum::of(now, group, counted).map(NvlinkSum::mean);
        };
        self.rate_of(now)
    }

    /// Returns the rate per GPU, if the sum is known to be one or to be counted.
    fn rate_of(&mut self, now: NvlinkSum) -> Option<f64> {
        let earlier = self.earlier.replace(now);
        if self.is_rate {
            return Some(now.mean());
        }
        let earlier = earlier.filter(|earlier| earlier.gpus == now.gpus)?;
        if now.sum < earlier.sum {
            *self = Self { is_rate: true, ..Self::default() };
            return Some(now.mean());
        }
        self.rises = self.rises.saturating_add(1);
        let seconds = now.at.duration_since(earlier.at).as_secs_f64();
        (self.rises > COUNTED_ROUNDS && seconds > 0.0)
            .then(|| (now.sum - earlier.sum) / seconds / now.gpus as f64)
    }

    /// Forgets the round before a pause, which began in it.
    pub(super) fn begin_pause(&mut self) {
        self.less.take_back();
        self.earlier = None;
    }

    /// Forgets the pace if it is older than so many seconds.
    pub(super) fn expire(&mut self, now: UnixMs, most_seconds: f64) {
        if self.pace.is_some() && now.duration_since(self.at).as_secs_f64() > most_seconds {
            self.pace = None;
        }
    }

    /// The evidence for a slowdown, if the pace is known.
    pub(super) fn slowdown(&self, rare: bool) -> Option<ShiftDetector> {
        self.pace.filter(|_| self.less.is_learned(rare)).map(|_| self.less)
    }

    /// The pace relative to the usual one.
    pub(super) fn pace(&self) -> Option<f64> {
        self.pace.map(f64::from)
    }
}

impl NvlinkSum {
    /// The sum over the GPUs of a job, if most of them report a value.
    fn of(at: UnixMs, group: &JobGroup, value: impl Fn(&u32) -> Option<f64>) -> Option<Self> {
        let (mut gpus, mut sum) = (0, 0.0);
        for value in group.gpus.iter().filter_map(value) {
            gpus += 1;
            sum += value;
        }
        (gpus * 2 > group.gpus.len()).then_some(Self { at, gpus, sum })
    }

    fn mean(self) -> f64 {
        self.sum / self.gpus as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(second: i64, sum: f64) -> NvlinkSum {
        NvlinkSum { at: UnixMs(second * 1_000), gpus: 2, sum }
    }

    #[test]
    fn sum_that_only_rises_is_a_counter_and_one_that_falls_a_rate() {
        let mut counted = NvlinkPace::default();
        let rates: Vec<Option<f64>> =
            (0..7).map(|round| counted.rate_of(sum(round * 10, 4e9 * round as f64))).collect();
        assert_eq!(rates[..5], [None; 5], "it may be a rate that rises");
        assert_eq!(rates[5..], [Some(2e8); 2]);
        let mut stated = NvlinkPace::default();
        let rates = [1e9, 2e9, 1.5e9, 2e9, 3e9].map(|value| stated.rate_of(sum(0, value)));
        assert_eq!(rates, [None, None, Some(7.5e8), Some(1e9), Some(1.5e9)]);
        // A GPU less is no fall.
        let mut fewer = NvlinkPace::default();
        let lone = NvlinkSum { gpus: 1, ..sum(10, 5e8) };
        assert_eq!([sum(0, 1e9), lone].map(|now| fewer.rate_of(now)), [None; 2]);
        assert!(!fewer.is_rate);
    }
}
