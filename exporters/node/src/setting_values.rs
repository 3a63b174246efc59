//! Values that the command line and the settings file share, and their bounds.

use std::time::Duration;

use gaunt_schema::time;
use serde::Deserialize;

/// The shortest and the longest period. Below the first the driver's own sampling windows repeat; above the second the
/// data is no longer live.
pub(crate) const PERIODS: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_mins(1));

/// An exporter whose names the page can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum CompatExporter {
    /// dcgm-exporter before 4.9.
    #[serde(rename = "dcgm", alias = "dcgm=4.8")]
    Dcgm4_8,
    /// dcgm-exporter since 4.9.
    #[serde(rename = "dcgm=4.9")]
    Dcgm4_9,
    /// node_exporter.
    #[serde(rename = "node")]
    Node,
}

/// The exporter of this name.
pub(crate) fn parse_compat(name: &str) -> Result<CompatExporter, String> {
    match name {
        "dcgm" | "dcgm=4.8" => Ok(CompatExporter::Dcgm4_8),
        "dcgm=4.9" => Ok(CompatExporter::Dcgm4_9),
        "node" => Ok(CompatExporter::Node),
        _ => Err("must be dcgm, dcgm=4.8, dcgm=4.9, node, or two of them: dcgm,node".to_owned()),
    }
}

/// A period such as `1s` or `500ms`.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    parse_duration(text, PERIODS)
}

/// A duration within these bounds.
pub(crate) fn parse_duration(
    text: &str,
    (min, max): (Duration, Duration),
) -> Result<Duration, String> {
    let span = time::parse_duration(text).ok_or("write a duration with its unit: 1s, 500ms")?;
    if span < min || span > max {
        return Err(format!("must be between {min:?} and {max:?}"));
    }
    Ok(span)
}
