//! Cluster, alerting and report settings: Alertmanagers, prices and CO2.

use std::path::{Path, PathBuf};

use gaunt_schema::{SanitizedText, Severity};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    access_section::{self, BasicAuthSection, TlsSection},
    setting_values::{PriceSetting, SpanSetting},
};
use crate::{alert, command::report_command::GpuPrices};

/// Alertmanagers that findings are posted to directly.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AlertmanagerSection {
    urls: Vec<String>,
    every: SpanSetting,
    least: Severity,
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
}

impl Default for AlertmanagerSection {
    fn default() -> Self {
        let (urls, every, least) = (Vec::new(), SpanSetting::from_seconds(60), Severity::Info);
        Self { urls, every, least, tls: TlsSection::default(), bearer_file: None, basic: None }
    }
}

impl AlertmanagerSection {
    /// Checks across keys.
    pub(super) fn check_section(&self) -> Result<(), String> {
        let (bearer, basic) = (self.bearer_file.as_ref(), self.basic.as_ref());
        access_section::check_access("alertmanager", &self.tls, bearer, basic)?;
        alert::check_servers(&self.urls).map_err(|error| error.to_string())?;
        match self.tls.server_name() {
            None => Ok(()),
            Some(name) => Err(format!(
                "alertmanager has tls.server_name; write {name:?} in alertmanager.urls instead"
            )),
        }
    }

    /// Alert options; none unless an Alertmanager is configured.
    pub(super) fn alert_options(
        self,
        settings: &Path,
        cluster: &str,
    ) -> Option<alert::AlertOptions> {
        let folder = settings.parent().unwrap_or(Path::new(""));
        (!self.urls.is_empty()).then(|| alert::AlertOptions {
            servers: self.urls,
            repeat_interval: self.every.to_duration(),
            min_severity: self.least,
            cluster: SanitizedText::new(cluster),
            access: access_section::of(self.tls, self.bearer_file, self.basic, folder),
        })
    }
}

/// Name and costs of the cluster.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterSection {
    pub(super) name: String,
    pub(super) price_per_gpu_hour: Option<PriceSetting>,
    pub(super) currency: String,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self { name: String::new(), price_per_gpu_hour: None, currency: "USD".to_owned() }
    }
}

/// Prices and factors of a report.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReportSection {
    #[serde(deserialize_with = "deserialize_co2_factor")]
    co2_kg_per_kwh: Option<f64>,
    prices: Vec<ModelPriceSection>,
}

/// Price of GPUs of one model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPriceSection {
    model: String,
    per_gpu_hour: PriceSetting,
}

impl ReportSection {
    pub(super) fn co2_kg_per_kwh(&self) -> Option<f64> {
        self.co2_kg_per_kwh
    }

    /// The price table; other models have the price of the cluster section.
    pub(super) fn gpu_prices(&self, cluster: &ClusterSection) -> GpuPrices {
        let price = |price: &ModelPriceSection| gaunt_engine::GpuModelPrice {
            model: price.model.clone(),
            per_gpu_hour: price.per_gpu_hour.to_amount(),
        };
        GpuPrices {
            by_model: self.prices.iter().map(price).collect(),
            default: cluster.price_per_gpu_hour.map(PriceSetting::to_amount),
            currency: SanitizedText::new(&cluster.currency).to_string(),
        }
    }
}

fn deserialize_co2_factor<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let factor = f64::deserialize(from)?;
    if (0.0..=10.0).contains(&factor) {
        return Ok(Some(factor));
    }
    Err(D::Error::custom(format!(
        "{factor} is not a CO2 factor; give kilograms per kWh from 0 to 10"
    )))
}
