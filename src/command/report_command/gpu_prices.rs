//! GPU prices of flags and settings.

use gaunt_engine::{GpuModelPrice, find_model_price};

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
    /// Adds the prices of flags, which take precedence; one without a model is that of all others.
    #[must_use]
    pub fn with_flags(
        mut self,
        flags: Vec<(Option<String>, f64)>,
        currency: Option<String>,
    ) -> Self {
        let default = flags.iter().find(|(model, _)| model.is_none());
        self.default = default.map(|(_, price)| *price).or(self.default);
        let by_model = flags.into_iter().filter_map(|(model, per_gpu_hour)| {
            model.map(|model| GpuModelPrice { model, per_gpu_hour })
        });
        self.by_model.splice(0..0, by_model);
        self.currency = currency.unwrap_or(self.currency);
        self
    }

    /// Price of a GPU-hour; none if unknown.
    pub fn of(&self, model: Option<&str>) -> Option<f64> {
        find_model_price(&self.by_model, model).or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_precedes_the_price_of_the_settings() {
        let price =
            |model: &str, per_gpu_hour| GpuModelPrice { model: model.to_owned(), per_gpu_hour };
        let settings = GpuPrices {
            by_model: vec![price("*H100*", 2.5)],
            default: Some(9.0),
            currency: "USD".to_owned(),
        };
        assert_eq!(settings.of(Some("NVIDIA H100")), Some(2.5));
        assert_eq!((settings.of(Some("NVIDIA L4")), settings.of(None)), (Some(9.0), Some(9.0)));
        let flags = vec![(Some("*H100*".to_owned()), 3.0), (None, 4.0)];
        let prices = settings.with_flags(flags, Some("EUR".to_owned()));
        assert_eq!((prices.of(Some("NVIDIA H100")), prices.of(None)), (Some(3.0), Some(4.0)));
        assert_eq!(prices.currency, "EUR");
        assert_eq!(GpuPrices::default().of(Some("NVIDIA L4")), None, "unknown is not free");
    }
}
