//! MIG instances on pages of dcgm-exporter. With MIG enabled it exports, by default, only series of instances: fields of
//! the instance itself, and fields of the whole GPU that each of its instances repeats.

use super::decode_plan::ValueRule;
use crate::{
    MetricId,
    catalogue::{UnitScale, gpu, gpu_health as health, gpu_parts as parts},
};

/// The label that only series of a MIG instance have: its number.
pub(super) const INSTANCE: &str = "GPU_I_ID";

/// The label with the profile of the instance, such as `3g.40gb`.
pub(super) const PROFILE: &str = "GPU_I_PROFILE";

/// What a field of an instance stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum InstanceField {
    /// A value of the whole GPU, which every instance repeats.
    OfGpu,
    /// A value of the instance: our metric for it if there is one, and what it contributes to the value of the GPU.
    OfInstance(Option<MetricId>, Contribution),
}

/// What the value of an instance contributes to that of its GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contribution {
    /// Nothing that could be added up.
    Nothing,
    /// Its whole value.
    Whole,
    /// Its value by its share of the GPU's compute slices.
    BySlices,
}

impl InstanceField {
    /// What DCGM reports for an instance under the name of this metric of a GPU.
    pub(super) const fn of(metric: MetricId) -> Self {
        use Contribution::{BySlices, Nothing, Whole};
        match metric {
            gpu::MEMORY_USED => Self::OfInstance(Some(parts::MIG_MEMORY_USED), Whole),
            gpu::MEMORY_TOTAL => Self::OfInstance(Some(parts::MIG_MEMORY_TOTAL), Nothing),
            gpu::MEMORY_FREE | health::MEMORY_RESERVED => Self::OfInstance(None, Whole),
            health::BAR1_USED | health::BAR1_TOTAL => Self::OfInstance(None, Nothing),
            gpu::SM_ACTIVE => Self::OfInstance(Some(parts::MIG_SM_ACTIVE), BySlices),
            gpu::TENSOR_ACTIVE => Self::OfInstance(Some(parts::MIG_TENSOR_ACTIVE), BySlices),
            // Bandwidth goes by memory slices, which the profile does not show.
            gpu::DRAM_ACTIVE => Self::OfInstance(Some(parts::MIG_DRAM_ACTIVE), Nothing),
            gpu::GRAPHICS_ACTIVE
            | gpu::SM_OCCUPANCY
            | gpu::FP64_ACTIVE
            | gpu::FP32_ACTIVE
            | gpu::FP16_ACTIVE => Self::OfInstance(None, BySlices),
            _ => Self::OfGpu,
        }
    }
}

impl Contribution {
    /// The conversion of an instance's value to a summand of its GPU's value. Without a known share the sum is absent.
    pub(super) fn summand_rule(self, rule: ValueRule, share: Option<f64>) -> Option<ValueRule> {
        let share = match self {
            Self::Nothing => return None,
            Self::Whole => return Some(rule),
            Self::BySlices => share.unwrap_or(f64::NAN),
        };
        let scale = match rule.scale {
            UnitScale::Same => UnitScale::Times(share),
            UnitScale::Times(factor) => UnitScale::Times(factor * share),
            UnitScale::Per(divisor) => UnitScale::Times(share / divisor),
        };
        Some(ValueRule { scale, ..rule })
    }
}

/// The share of its GPU's compute slices that an instance of this profile has.
pub(super) fn slice_share(profile: &str, model: &str) -> Option<f64> {
    // Of `3g.40gb`, `1g.10gb+me` and `1c.3g.40gb` the part in g is the number of slices of the GPU instance.
    let slices = profile.split('.').find_map(|part| part.strip_suffix('g')?.parse::<u8>().ok())?;
    let all = slices_of_model(model);
    (1..=all).contains(&slices).then(|| f64::from(slices) / f64::from(all))
}

/// The compute slices of a GPU: four on the small ones, seven on all others.
fn slices_of_model(model: &str) -> u8 {
    let is_small = ["A30", "RTX PRO"].iter().any(|small| model.contains(small));
    if is_small { 4 } else { 7 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_profile_gives_share_of_gpu() {
        for (profile, model, share) in [
            ("1g.10gb", "NVIDIA H100 80GB HBM3", Some(1.0 / 7.0)),
            ("1g.10gb+me", "NVIDIA H100 80GB HBM3", Some(1.0 / 7.0)),
            ("7g.80gb", "NVIDIA H100 80GB HBM3", Some(1.0)),
            ("1c.3g.40gb", "NVIDIA A100-SXM4-80GB", Some(3.0 / 7.0)),
            ("2g.12gb", "NVIDIA A30", Some(0.5)),
            ("7g.80gb", "NVIDIA A30", None),
            ("", "NVIDIA A30", None),
            ("0g.1gb", "NVIDIA A30", None),
            ("large", "NVIDIA A30", None),
        ] {
            assert_eq!(slice_share(profile, model), share, "{profile} of {model}");
        }
    }
}
