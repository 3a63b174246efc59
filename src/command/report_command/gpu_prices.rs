//! GPU prices: the price of a GPU-hour by GPU model.

use gaunt_schema::GlobPattern;

/// Price of the GPUs whose model matches.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuModelPrice {
    /// Model as the driver reports it; `*` matches any text.
    pub model: String,
    /// Price of one GPU-hour.
    pub per_gpu_hour: f64,
}

/// The price table. The first entry that matches applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuPrices {
    /// Prices by model.
    pub by_model: Vec<GpuModelPrice>,
    /// Price of all other models, if known.
    pub default: Option<f64>,
    /// Currency of all prices.
    pub currency: String,
}

impl GpuPrices {
    /// Price of a GPU-hour; none if unknown.
    pub fn of(&self, model: Option<&str>) -> Option<f64> {
        let matches = |price: &&GpuModelPrice| {
            model.is_some_and(|model| GlobPattern::new(&price.model).matches_text(model))
        };
        self.by_model.iter().find(matches).map(|price| price.per_gpu_hour).or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_price_applies() {
        let price =
            |model: &str, per_gpu_hour| GpuModelPrice { model: model.to_owned(), per_gpu_hour };
        let prices = GpuPrices {
            by_model: vec![
                price("*H100*80GB*", 2.5),
                price("NVIDIA A100*", 1.2),
                price("*L4", 0.5),
            ],
            default: Some(9.0),
            currency: "USD".to_owned(),
        };
        for (model, expected) in [
            ("NVIDIA H100 80GB HBM3", 2.5),
            ("NVIDIA A100-SXM4-40GB", 1.2),
            ("NVIDIA L4", 0.5),
            ("NVIDIA L40", 9.0),
            ("NVIDIA H100 PCIe", 9.0),
        ] {
            assert_eq!(prices.of(Some(model)), Some(expected), "{model}");
        }
        assert_eq!(prices.of(None), Some(9.0));
        assert_eq!(GpuPrices::default().of(Some("NVIDIA L4")), None, "unknown is not free");
    }
}
