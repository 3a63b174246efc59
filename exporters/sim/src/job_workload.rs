//! Job workloads: what the jobs of a fleet do, and how their step times vary.

use crate::{gpu_activity::GpuLoadProfile, noise_key::NoiseKey};

/// Time to copy one batch of the default job to the GPUs.
const COPY_S: f64 = 0.008;

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobWorkload {
    /// Training: its ranks step together.
    #[default]
    Train,
    /// Inference: each GPU serves requests independently, with hours of idle time.
    Serve,
    /// Inference on MIG instances, for which whole-GPU utilization is meaningless.
    Slices,
    /// Inference with several processes sharing each GPU.
    Shared,
}

/// Distribution of random times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeDistribution {
    /// Uniform.
    Even,
    /// Bell-shaped.
    Bell,
    /// Near the middle, with rare large outliers.
    Tail,
    /// Near a middle that drifts.
    Drift,
}

impl TimeDistribution {
    /// A random factor around 1 with a spread of about `spread`; `step` is the position of a drifting middle.
    pub(crate) fn random_factor(self, noise: NoiseKey, spread: f64, step: u64) -> f64 {
        let bell_noise = |spread: f64| {
            let sum: f64 = (0..4).map(|draw| noise.child_key(draw).random_between(-1.0, 1.0)).sum();
            sum / 2.0 * spread
        };
        match self {
            Self::Even => noise.random_factor(spread),
            Self::Bell => 1.0 + bell_noise(spread),
            Self::Tail => {
                let outlier = if noise.child_key(9).random_unit() < 0.02 {
                    noise.child_key(10).random_unit() * 5.0
                } else {
                    0.0
                };
                1.0 + bell_noise(spread * 0.7) + spread * outlier
            }
            Self::Drift => {
                let center = (step as f64 / 23.0).sin() * 0.7;
                1.0 + spread * center + bell_noise(spread * 0.6)
            }
        }
    }
}

/// Step timing of a job, drawn once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPace {
    pub(crate) work: JobWorkload,
    pub(crate) copy_s: f64,
    pub(crate) compute_s: f64,
    pub(crate) communicate_s: f64,
    /// Pipeline bubble time in each step.
    pub(crate) bubble_s: f64,
    /// Pipeline stages; the nodes of a job are assigned to them in order.
    pub(crate) stages: usize,
    /// Input bytes of one GPU for one step.
    pub(crate) batch_bytes: f64,
    pub(crate) load_profile: GpuLoadProfile,
    /// Whether a thread on each host busy-waits all the time.
    pub(crate) spins: bool,
    pub(crate) waveform: TimeDistribution,
    /// Relative spread of the steps of a job group, and of the ranks within a step.
    pub(crate) step_spread: f64,
    pub(crate) rank_spread: f64,
}

impl JobPace {
    /// Four steps a second: the timing of the demonstration.
    pub(crate) fn new_brisk(noise: NoiseKey) -> Self {
        let batch_bytes = noise.child_key(0).random_between(9e6, 16e6);
        Self {
            work: JobWorkload::Train,
            copy_s: COPY_S,
            communicate_s: noise.child_key(1).random_between(0.037, 0.050),
            compute_s: noise.child_key(2).random_between(0.18, 0.22),
            bubble_s: 0.0,
            stages: 1,
            batch_bytes,
            load_profile: GpuLoadProfile {
                tensor: noise.child_key(3).random_between(0.47, 0.53),
                copy_rate: batch_bytes / COPY_S,
                gradient_rate: 2.2e11,
            },
            spins: false,
            waveform: TimeDistribution::Even,
            step_spread: 0.03,
            rank_spread: 0.015,
        }
    }

    /// The timing of a suite job. Tuning and test runs use different parameter ranges.
    pub(crate) fn new_random(noise: NoiseKey, test: bool) -> Self {
        let first = noise.child_key(0).random_below(2) == 0;
        let (length, waveform, tensor, shares) = match (test, first) {
            (true, true) => ((0.5, 0.8), TimeDistribution::Tail, (0.36, 0.44), (0.12, 0.16)),
            (true, false) => ((3.2, 6.0), TimeDistribution::Drift, (0.36, 0.44), (0.12, 0.16)),
            (false, true) => ((0.8, 3.2), TimeDistribution::Even, (0.44, 0.60), (0.16, 0.24)),
            (false, false) => ((0.8, 3.2), TimeDistribution::Bell, (0.44, 0.60), (0.16, 0.24)),
        };
        let step_s = noise.child_key(1).random_between(length.0, length.1);
        let communicate_s = step_s * noise.child_key(2).random_between(shares.0, shares.1);
        let copy_s = step_s * noise.child_key(3).random_between(0.02, 0.05);
        let batch_bytes = copy_s * noise.child_key(4).random_between(2e9, 9e9);
        Self {
            work: JobWorkload::Train,
            copy_s,
            compute_s: step_s - communicate_s - copy_s,
            communicate_s,
            bubble_s: 0.0,
            stages: 1,
            batch_bytes,
            load_profile: GpuLoadProfile {
                tensor: noise.child_key(5).random_between(tensor.0, tensor.1),
                copy_rate: batch_bytes / copy_s,
                gradient_rate: noise.child_key(6).random_between(1.2e11, 2.4e11),
            },
            spins: noise.child_key(9).random_below(3) == 0,
            waveform,
            step_spread: noise.child_key(7).random_between(0.01, 0.04),
            rank_spread: noise.child_key(8).random_between(0.005, 0.03),
        }
    }

    /// The same job as a mixture-of-experts job: it communicates more, and less evenly.
    pub(crate) fn with_experts(mut self, noise: NoiseKey) -> Self {
        let shift_s = (self.compute_s * noise.random_between(0.14, 0.24)).min(self.compute_s * 0.5);
        self.compute_s -= shift_s;
        self.communicate_s += shift_s;
        self.step_spread = self.step_spread.max(0.05);
        self
    }

    /// Duration of an undisturbed step.
    pub(crate) fn step_s(&self) -> f64 {
        self.copy_s + self.compute_s + self.bubble_s + self.communicate_s
    }
}
