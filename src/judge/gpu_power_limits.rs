//! Rated GPU power limits, for pages that report power without its limit, as dcgm-exporter's default list does.

/// The rated power limit in watts (data sheets), by a part of the model's name; the first match counts.
const LIMITS: [(&str, f64); 29] = [
    ("GB300", 1_400.0),
    ("GB200", 1_200.0),
    ("B300", 1_100.0),
    ("B200", 1_000.0),
    ("H200 NVL", 600.0),
    ("H200", 700.0),
    ("H100 NVL", 400.0),
    ("H100 PCIe", 350.0),
    ("H100", 700.0),
    ("H800", 700.0),
    ("H20", 500.0),
    ("A100-PCIE", 250.0),
    ("A100 80GB PCIe", 300.0),
    ("A100", 400.0),
    ("A800", 400.0),
    ("L40S", 350.0),
    ("L40", 300.0),
    ("L4", 72.0),
    ("A40", 300.0),
    ("A30", 165.0),
    ("A10", 150.0),
    ("V100-PCIE", 250.0),
    ("V100", 300.0),
    ("T4", 70.0),
    ("RTX 6000 Ada", 300.0),
    ("RTX 4090", 450.0),
    ("MI325X", 1_000.0),
    ("MI300X", 750.0),
    ("MI250", 560.0),
];

/// Returns the rated power limit of a GPU model, if known.
pub(super) fn rated_power_limit(model: &str) -> Option<f64> {
    LIMITS.iter().find(|(name, _)| model.contains(name)).map(|(_, watts)| *watts)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("a board of tomorrow", None),
        ] {
            assert_eq!(rated_power_limit(model), watts, "{model}");
        }
    }
}
