//! GPU prices: the price of a GPU-hour by GPU model.

use gaunt_api::UsageRow;
use gaunt_schema::GlobPattern;

use super::EngineOptions;

/// Price of the GPUs whose model matches.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuModelPrice {
    /// Model as the driver reports it; `*` matches any text.
    pub model: String,
    /// Price of one GPU-hour.
    pub per_gpu_hour: f64,
}

/// The first price that matches a model.
pub fn find_model_price(prices: &[GpuModelPrice], model: Option<&str>) -> Option<f64> {
    let model = model?;
    let matches = |price: &&GpuModelPrice| GlobPattern::new(&price.model).matches_text(model);
    prices.iter().find(matches).map(|price| price.per_gpu_hour)
}

impl EngineOptions {
    /// Sets what a GPU-hour of each row costs, as far as prices are configured.
    pub fn set_usage_prices(&self, rows: &mut [UsageRow]) {
        for row in rows {
            let by_model = find_model_price(&self.model_prices, row.model.as_deref());
            row.price_per_gpu_hour = by_model.or(self.price_per_gpu_hour);
            row.currency = row.price_per_gpu_hour.map(|_| self.currency.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::SanitizedText;

    use super::*;

    fn model_price(model: &str, per_gpu_hour: f64) -> GpuModelPrice {
        GpuModelPrice { model: model.to_owned(), per_gpu_hour }
    }

    #[test]
    fn first_matching_price_applies() {
        let prices = [
            model_price("*H100*80GB*", 2.5),
            model_price("NVIDIA A100*", 1.2),
            model_price("*L4", 0.5),
        ];
        for (model, expected) in [
            ("NVIDIA H100 80GB HBM3", Some(2.5)),
            ("NVIDIA A100-SXM4-40GB", Some(1.2)),
            ("NVIDIA L4", Some(0.5)),
            ("NVIDIA L40", None),
            ("NVIDIA H100 PCIe", None),
        ] {
            assert_eq!(find_model_price(&prices, Some(model)), expected, "{model}");
        }
        assert_eq!(find_model_price(&prices, None), None);
    }

    #[test]
    fn usage_rows_carry_the_price_of_their_model_or_else_of_the_cluster() {
        let options = |price_per_gpu_hour| EngineOptions {
            price_per_gpu_hour,
            model_prices: vec![model_price("*L4", 0.5)],
            currency: SanitizedText::new("EUR"),
            ..EngineOptions::default()
        };
        let priced = |options: EngineOptions, model: &str| {
            let model = Some(SanitizedText::new(model));
            let mut rows = [UsageRow { model, ..UsageRow::default() }];
            options.set_usage_prices(&mut rows);
            let [row] = rows;
            (row.price_per_gpu_hour, row.currency.map(|currency| currency.to_string()))
        };
        let euros = |price| (Some(price), Some("EUR".to_owned()));
        assert_eq!(priced(options(Some(2.0)), "NVIDIA L4"), euros(0.5));
        assert_eq!(priced(options(Some(2.0)), "NVIDIA H100"), euros(2.0));
        assert_eq!(priced(options(None), "NVIDIA H100"), (None, None));
    }
}
