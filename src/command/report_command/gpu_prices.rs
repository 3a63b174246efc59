//! GPU prices: the price of a GPU-hour by GPU model.

use gaunt_api::LostGpuTime;
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

    /// Takes the price of all other models, and its currency, from the source of the report if neither flags nor settings
    /// have one. Prices by model of another currency stay alone.
    #[must_use]
    pub fn or_price_of(mut self, source: &LostGpuTime) -> Self {
        let has_currency = self.by_model.is_empty() || *source.currency == *self.currency;
        if self.default.is_none() && source.price_per_gpu_hour.is_some() && has_currency {
            self.default = source.price_per_gpu_hour;
            self.currency = source.currency.to_string();
        }
        self
    }

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
    use gaunt_schema::SanitizedText;

    use super::*;

    #[test]
    fn price_of_the_source_is_for_what_flags_and_settings_leave_open() {
        let source = LostGpuTime {
            price_per_gpu_hour: Some(2.5),
            currency: SanitizedText::new("EUR"),
            ..LostGpuTime::default()
        };
        let none = || GpuPrices { currency: "USD".to_owned(), ..GpuPrices::default() };
        let taken = none().or_price_of(&source);
        assert_eq!((taken.default, taken.currency.as_str()), (Some(2.5), "EUR"));
        let flag = none().with_flags(vec![(None, 4.0)], None).or_price_of(&source);
        assert_eq!((flag.default, flag.currency.as_str()), (Some(4.0), "USD"));
        let model = || vec![(Some("*L4".to_owned()), 0.5)];
        let dollars = none().with_flags(model(), None).or_price_of(&source);
        assert_eq!((dollars.default, dollars.currency.as_str()), (None, "USD"));
        let euros = none().with_flags(model(), Some("EUR".to_owned())).or_price_of(&source);
        assert_eq!((euros.default, euros.of(Some("NVIDIA L4"))), (Some(2.5), Some(0.5)));
        assert_eq!(none().or_price_of(&LostGpuTime::default()), none());
    }

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
