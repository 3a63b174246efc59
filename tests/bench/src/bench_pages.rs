//! Benchmark pages: 8 GPUs with 120 metrics each, with dcgm-exporter's labels and with short ones.
//!
//! This file generates them, and they are committed, so that a figure can be traced to the bytes it was measured on.

use std::{
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::dcgm_fields::{FIELDS, FieldShape};

/// GPUs of the node.
const GPUS: u64 = 8;

/// Samples of each page.
pub(crate) const SAMPLES: usize = FIELDS.len() * GPUS as usize;

/// Seed for the values of the committed pages.
const SEED: u64 = 2026;

/// Generates a page.
type PageGenerator = fn() -> String;

/// Every page: its file and its generator.
const PAGES: [(&str, PageGenerator); 2] = [("dcgm.prom", dcgm_page), ("short.prom", short_page)];

/// Writes the pages to their files.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    for (name, make) in PAGES {
        let path = fixture_path(name);
        let page = make();
        std::fs::write(&path, &page).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(out, "{name}: {SAMPLES} samples, {} bytes", page.len())?;
    }
    writeln!(out, "{}", serde_json::json!({ "pages": PAGES.len() }))?;
    Ok(())
}

fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scrapes").join(name)
}

/// The page in dcgm-exporter's format: seven labels on every sample.
pub(crate) fn dcgm_page() -> String {
    dcgm_page_of_seed(SEED)
}

/// The same page at eight instants: only values differ.
pub(crate) fn dcgm_page_sequence() -> Vec<String> {
    (0..8).map(|later| dcgm_page_of_seed(SEED + later)).collect()
}

/// The page of a node at work at so many instants, ten seconds apart: counters count, gauges vary about the level of their
/// field, and nothing fails. On [`dcgm_page`] every counter goes back now and then, and every tenth GPU has an XID: a
/// fleet of such nodes is one of faults, and what it costs is what its findings cost.
pub(crate) fn steady_page_sequence(instants: u64) -> Vec<String> {
    let page_at = |instant| {
        let value = |field: &str, shape, random: &mut SplitMix64| {
            steady_value(field, shape, random.next_below(1_000), instant)
        };
        build_dcgm_page(SEED + instant, value)
    };
    (0..instants).map(page_at).collect()
}

/// A number as an exporter would print it for a GPU at work; `noise` is up to 999.
fn steady_value(field: &str, shape: FieldShape, noise: u64, instant: u64) -> String {
    let is_constant = ["MAX", "LIMIT", "APP_", "TOTAL_APP", "BAR1", "FB_", "_MEM_CLOCK"];
    let is_constant = is_constant.iter().any(|part| field.contains(part));
    let noise = if is_constant { 500 } else { noise };
    match (shape, field) {
        (_, "DEV_FB_TOTAL") => "81559".to_owned(),
        (_, "DEV_FB_FREE") => "20559".to_owned(),
        (_, "DEV_PCIE_LINK_GEN" | "DEV_PCIE_MAX_LINK_GEN") => "5".to_owned(),
        (_, "DEV_PCIE_LINK_WIDTH" | "DEV_PCIE_MAX_LINK_WIDTH") => "16".to_owned(),
        (_, "DEV_FABRIC_MANAGER_STATUS") => "3".to_owned(),
        (FieldShape::Rare, _)
        | (FieldShape::Large, "DEV_POWER_VIOLATION" | "DEV_THERMAL_VIOLATION") => "0".to_owned(),
        (FieldShape::Megahertz, _) if is_constant => "1980".to_owned(),
        (FieldShape::Watts, _) if is_constant => "700.000".to_owned(),
        (FieldShape::Megahertz, _) => (1_755 + noise / 50).to_string(),
        (FieldShape::Celsius, _) => (58 + noise / 200).to_string(),
        (FieldShape::Watts, _) => format!("{}.{noise:03}", 610 + noise / 40),
        (FieldShape::Percent, _) => (96 + noise / 250).to_string(),
        (FieldShape::Mebibytes, _) => "61000".to_owned(),
        (FieldShape::Ratio, _) => format!("0.{:06}", 600_000 + noise * 40),
        (FieldShape::Large, _) => {
            (80_000_000_000 + instant * 6_500_000_000 + noise * 100_000).to_string()
        }
        (FieldShape::Rate, _) => format!("{}.{noise:03}000", 410_000_000 + noise * 20_000),
    }
}

fn dcgm_page_of_seed(seed: u64) -> String {
    build_dcgm_page(seed, |_, shape, random| random_value(shape, random))
}

fn build_dcgm_page(
    seed: u64,
    value: impl Fn(&str, FieldShape, &mut SplitMix64) -> String,
) -> String {
    build_page(
        seed,
        |field| format!("DCGM_FI_{field}"),
        |gpu| {
            let mut id = SplitMix64(gpu + 1);
            let (head, mid, tail) = (
                id.next_number() >> 32,
                id.next_number() & 0xffff,
                id.next_number() & 0xffff_ffff_ffff,
            );
            format!(
                "gpu=\"{gpu}\",UUID=\"GPU-{head:08x}-{mid:04x}-4be1-9d27-{tail:012x}\",\
             pci_bus_id=\"00000000:{:02X}:00.0\",device=\"nvidia{gpu}\",\
             modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-0417\",\
             DCGM_FI_DRIVER_VERSION=\"550.54.15\"",
                gpu * 17 + 0x1b
            )
        },
        value,
    )
}

/// The page with one short label on every sample, as gaunt-node writes its GPUs.
pub(crate) fn short_page() -> String {
    short_page_of_seed(SEED)
}

/// The same page at eight instants: only values differ.
pub(crate) fn short_page_sequence() -> Vec<String> {
    (0..8).map(|later| short_page_of_seed(SEED + later)).collect()
}

fn short_page_of_seed(seed: u64) -> String {
    let name = |field: &str| {
        let (_, suffix) = field.split_once('_').unwrap_or(("", field));
        format!("gaunt_gpu_{}", suffix.to_lowercase())
    };
    let value = |_: &str, shape, random: &mut SplitMix64| random_value(shape, random);
    build_page(seed, name, |gpu| format!("gpu=\"{gpu}\""), value)
}

fn build_page(
    seed: u64,
    name: impl Fn(&str) -> String,
    labels: impl Fn(u64) -> String,
    value: impl Fn(&str, FieldShape, &mut SplitMix64) -> String,
) -> String {
    let labels: Vec<String> = (0..GPUS).map(labels).collect();
    let mut random = SplitMix64(seed);
    let mut page = String::new();
    for (field, shape) in FIELDS {
        let name = name(field);
        let kind = if shape == FieldShape::Large { "counter" } else { "gauge" };
        let help = field.replace('_', " ").to_lowercase();
        let _ = writeln!(page, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        for labels in &labels {
            let _ = writeln!(page, "{name}{{{labels}}} {}", value(field, shape, &mut random));
        }
    }
    page
}

/// A number as an exporter would print it.
fn random_value(shape: FieldShape, random: &mut SplitMix64) -> String {
    match shape {
        FieldShape::Megahertz => (1095 + random.next_below(886)).to_string(),
        FieldShape::Celsius => (31 + random.next_below(60)).to_string(),
        FieldShape::Watts => {
            format!("{}.{:03}", 70 + random.next_below(630), random.next_below(1000))
        }
        FieldShape::Percent => random.next_below(101).to_string(),
        FieldShape::Mebibytes => random.next_below(81_559).to_string(),
        FieldShape::Ratio => format!("0.{:06}", random.next_below(1_000_000)),
        FieldShape::Rare => {
            (if random.next_below(20) == 0 { random.next_below(64) } else { 0 }).to_string()
        }
        FieldShape::Large => {
            let magnitude = random.next_below(6) as u32;
            random.next_below(10_u64.pow(9 + magnitude)).to_string()
        }
        FieldShape::Rate if random.next_below(3) == 0 => {
            format!(
                "{}.{:06}e+{:02}",
                1 + random.next_below(9),
                random.next_below(1_000_000),
                8 + random.next_below(3)
            )
        }
        FieldShape::Rate => {
            format!("{}.{:06}", random.next_below(900_000_000), random.next_below(1_000_000))
        }
    }
}

/// A small random number generator with the same sequence on every machine (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn next_below(&mut self, limit: u64) -> u64 {
        self.next_number() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_pages_equal_the_generated_ones() {
        for (name, make) in PAGES {
            let committed = std::fs::read_to_string(fixture_path(name)).unwrap();
            assert!(committed == make(), "{name} is stale: cargo run -p gaunt-bench -- pages");
        }
    }

    #[test]
    fn parser_accepts_every_sample_of_the_pages() {
        use gaunt_schema::text::{PageLimits, PageLine, TextReader};
        for (_, make) in PAGES {
            let page = make();
            let mut reader = TextReader::new(page.as_bytes(), &PageLimits::default());
            let mut samples = 0;
            while let Some(line) = reader.next() {
                samples += usize::from(matches!(line.unwrap(), PageLine::Sample(_)));
            }
            assert_eq!(samples, SAMPLES);
        }
    }
}
