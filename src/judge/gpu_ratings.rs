//! Rated power limits and clocks of GPU models, for pages that report power and clocks without their limits, as
//! dcgm-exporter's default list does.

use gaunt_cluster::Cluster;
use gaunt_schema::catalogue::gpu;

/// The rated power limit in watts and the highest clock of the streaming multiprocessors in gigahertz (data sheets, rounded),
/// by a part of the model's name; the first match counts.
const RATINGS: [(&str, f64, f64); 57] = [
    ("GB300", 1_400.0, 1.92),
    ("GB200", 1_200.0, 1.965),
    ("B300", 1_100.0, 1.92),
    ("B200", 1_000.0, 1.965),
    ("H200 NVL", 600.0, 1.785),
    ("H200", 700.0, 1.98),
    ("H100 NVL", 400.0, 1.785),
    ("H100 PCIe", 350.0, 1.755),
    ("H100", 700.0, 1.98),
    ("H800", 700.0, 1.98),
    ("H20", 500.0, 1.98),
    ("A100-PCIE", 250.0, 1.41),
    ("A100 80GB PCIe", 300.0, 1.41),
    ("A100", 400.0, 1.41),
    ("A800", 400.0, 1.41),
    ("RTX A6000", 300.0, 1.8),
    ("RTX A5500", 230.0, 1.77),
    ("RTX A5000", 230.0, 1.695),
    ("RTX A4500", 200.0, 1.65),
    ("RTX A4000", 140.0, 1.56),
    ("RTX A2000", 70.0, 1.2),
    ("RTX 6000 Ada", 300.0, 2.505),
    ("RTX 5000 Ada", 250.0, 2.55),
    ("RTX 4500 Ada", 210.0, 2.58),
    ("RTX 4000 Ada", 130.0, 2.175),
    ("RTX PRO 6000", 600.0, 2.6),
    ("RTX 5090", 575.0, 2.41),
    ("RTX 4090", 450.0, 2.52),
    ("RTX 4080", 320.0, 2.505),
    ("RTX 3090 Ti", 450.0, 1.86),
    ("RTX 3090", 350.0, 1.695),
    ("RTX 3080", 320.0, 1.71),
    ("RTX 2080 Ti", 250.0, 1.545),
    ("Quadro RTX 8000", 260.0, 1.77),
    ("Quadro RTX 6000", 260.0, 1.77),
    ("TITAN RTX", 280.0, 1.77),
    ("L40S", 350.0, 2.52),
    ("L40", 300.0, 2.49),
    ("L20", 275.0, 2.52),
    ("L4", 72.0, 2.04),
    ("A40", 300.0, 1.74),
    ("A30", 165.0, 1.44),
    ("A10", 150.0, 1.695),
    ("A2", 60.0, 1.77),
    ("V100-PCIE", 250.0, 1.38),
    ("V100", 300.0, 1.53),
    ("P100-PCIE", 250.0, 1.33),
    ("P100", 300.0, 1.48),
    ("P40", 250.0, 1.53),
    ("T4", 70.0, 1.59),
    ("MI355X", 1_400.0, 2.4),
    ("MI350X", 1_000.0, 2.2),
    ("MI325X", 1_000.0, 2.1),
    ("MI300X", 750.0, 2.1),
    ("MI250", 560.0, 1.7),
    ("MI210", 300.0, 1.7),
    ("MI100", 290.0, 1.5),
];

/// No model has a higher clock, in hertz.
pub(super) const HIGHEST_RATED_CLOCK: f64 = 2.6e9;

/// No GPU draws so many times its limit, and none so few watts.
const MOST_OF_LIMIT: f64 = 10.0;

/// Returns power as a share of the enforced limit, else of the rated limit of the model; where neither is known, it stays in
/// watts, which still tell how it changes.
pub(super) fn scale_power(cluster: &Cluster, row: u32, watts: f64) -> f64 {
    let reported = cluster.current_value(gpu::POWER_LIMIT, row).filter(|limit| *limit > 0.0);
    match reported.or_else(|| rated_power_limit(cluster.gpu_model(row)?)) {
        Some(limit) => (watts / limit).min(MOST_OF_LIMIT),
        None => watts.max(MOST_OF_LIMIT * 1.01),
    }
}

/// Whether power is a share of the limit, and not in watts.
pub(super) fn is_share_of_limit(power: f64) -> bool {
    power <= MOST_OF_LIMIT
}

/// Returns the rated power limit of a GPU model, if known.
fn rated_power_limit(model: &str) -> Option<f64> {
    rating(model).map(|(_, watts, _)| watts)
}

/// Returns about the highest SM clock of a GPU model in hertz, if known.
pub(super) fn rated_clock(model: &str) -> Option<f64> {
    rating(model).map(|(.., gigahertz)| gigahertz * 1e9)
}

fn rating(model: &str) -> Option<(&'static str, f64, f64)> {
    RATINGS.iter().find(|(name, ..)| model.contains(name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_model_has_a_higher_clock_than_the_highest() {
        assert!(RATINGS.iter().all(|(.., gigahertz)| gigahertz * 1e9 <= HIGHEST_RATED_CLOCK));
    }

    #[test]
    fn power_limit_is_found_by_the_model_names_of_drivers() {
        for (model, watts) in [
            ("NVIDIA H100 80GB HBM3", Some(700.0)),
            ("NVIDIA H100 PCIe", Some(350.0)),
            ("NVIDIA A100-SXM4-40GB", Some(400.0)),
            ("NVIDIA A10G", Some(150.0)),
            ("NVIDIA L40S", Some(350.0)),
            ("NVIDIA L4", Some(72.0)),
            ("NVIDIA GB200", Some(1_200.0)),
            ("Tesla V100-SXM2-32GB", Some(300.0)),
            ("NVIDIA RTX A6000", Some(300.0)),
            ("NVIDIA RTX A4000", Some(140.0)),
            ("NVIDIA A40", Some(300.0)),
            ("NVIDIA A2", Some(60.0)),
            ("NVIDIA GeForce RTX 3090", Some(350.0)),
            ("a board of tomorrow", None),
        ] {
            assert_eq!(rated_power_limit(model), watts, "{model}");
        }
    }
}
