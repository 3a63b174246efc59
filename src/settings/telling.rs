//! What the settings file says of who is told: Alertmanagers, and whoever reads reports.

use std::path::{Path, PathBuf};

use gaunt_schema::{Safe, Severity};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    access::{self, FileBasic, FileTls},
    file::{Cluster, Price, Span},
};
use crate::{
    alert,
    command::report::{self, Prices},
};

/// Where findings are posted without Prometheus.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Alertmanager {
    urls: Vec<String>,
    every: Span,
    least: Severity,
    tls: FileTls,
    bearer_file: Option<PathBuf>,
    basic: Option<FileBasic>,
}

impl Default for Alertmanager {
    fn default() -> Self {
        let (urls, every, least) = (Vec::new(), Span::seconds(60), Severity::Info);
        Self { urls, every, least, tls: FileTls::default(), bearer_file: None, basic: None }
    }
}

impl Alertmanager {
    /// What no single key can know.
    pub(super) fn check(&self) -> Result<(), String> {
        let (bearer, basic) = (self.bearer_file.as_ref(), self.basic.as_ref());
        access::check("alertmanager", &self.tls, bearer, basic)?;
        match self.tls.server_name() {
            None => Ok(()),
            Some(name) => Err(format!(
                "alertmanager has tls.server_name; write {name:?} in alertmanager.urls instead"
            )),
        }
    }

    /// None unless an Alertmanager is named.
    pub(super) fn options(self, settings: &Path, cluster: &str) -> Option<alert::Options> {
        let folder = settings.parent().unwrap_or(Path::new(""));
        (!self.urls.is_empty()).then(|| alert::Options {
            servers: self.urls,
            every: self.every.value(),
            least: self.least,
            cluster: Safe::new(cluster),
            access: access::of(self.tls, self.bearer_file, self.basic, folder),
        })
    }
}

/// What a report reckons with.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Report {
    #[serde(deserialize_with = "factor")]
    co2_kg_per_kwh: Option<f64>,
    prices: Vec<ModelPrice>,
}

/// The price of boards of one model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPrice {
    model: String,
    per_gpu_hour: Price,
}

impl Report {
    pub(super) fn co2_kg_per_kwh(&self) -> Option<f64> {
        self.co2_kg_per_kwh
    }

    /// The price table; what it does not name costs what the section of the cluster says.
    pub(super) fn prices(&self, cluster: &Cluster) -> Prices {
        let price = |price: &ModelPrice| report::Price {
            model: price.model.clone(),
            per_gpu_hour: price.per_gpu_hour.value(),
        };
        Prices {
            by_model: self.prices.iter().map(price).collect(),
            usual: cluster.price_per_gpu_hour.map(Price::value),
            currency: Safe::new(&cluster.currency).to_string(),
        }
    }
}

fn factor<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let factor = f64::deserialize(from)?;
    if (0.0..=10.0).contains(&factor) {
        return Ok(Some(factor));
    }
    Err(D::Error::custom(format!("{factor} is no factor; give kilograms of CO2 from 0 to 10")))
}
