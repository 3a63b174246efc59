//! Stored fabric: the network of one instant, read back from a store: numbers by leaf and rail, and the flagged ports.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_api::{FABRIC_SERIES, FabricCellColumns, FabricCellSeries, FabricMatrix, PORT_STATES};
use gaunt_schema::{FindingKind, SanitizedText, UnixMs, catalogue::fleet_metrics, natural_order};
use gaunt_series::StoredSample;

/// The most cells and ports that are taken, as many as the engine shows.
const MAX_CELLS: usize = 65_536;
const MAX_PORTS: usize = 1_000;

/// The network of an instant.
#[derive(Debug, Default)]
pub(super) struct StoredFabric {
    /// Numbers by leaf and rail.
    cells: BTreeMap<(SanitizedText, SanitizedText), FabricCellSeries>,
    /// The flagged ports, by node, device and port.
    ports: BTreeMap<[SanitizedText; 3], FlaggedPort>,
}

/// A port that was not active, or that a finding was about.
#[derive(Clone, Debug)]
pub(super) struct FlaggedPort {
    /// Its node, its device, and the number of the port on it.
    pub(super) name: [SanitizedText; 3],
    /// Its leaf; empty if unknown.
    pub(super) leaf: SanitizedText,
    /// Its rail; empty if unknown.
    pub(super) rail: SanitizedText,
    /// Its logical state in words, if it was known.
    pub(super) state: Option<&'static str>,
    /// The worst finding about it.
    pub(super) finding: Option<FindingKind>,
}

impl StoredFabric {
    /// Takes a sample of a series of the network; others are left out.
    pub(super) fn add_sample(&mut self, sample: &StoredSample<'_>) {
        let text = |label: &str| SanitizedText::new(sample.label(label));
        if sample.name == fleet_metrics::FLAGGED_PORT.catalogue_row().name {
            let name = ["node", "device", "port"].map(text);
            if self.ports.len() < MAX_PORTS || self.ports.contains_key(&name) {
                let state = (sample.value as usize).checked_sub(1);
                let port = FlaggedPort {
                    name: name.clone(),
                    leaf: text("leaf"),
                    rail: text("rail"),
                    state: state.and_then(|place| PORT_STATES.get(place).copied()),
                    finding: FindingKind::parse(sample.label("kind")),
                };
                self.ports.insert(name, port);
            }
            return;
        }
        let is_named = |metric: &gaunt_schema::MetricId| metric.catalogue_row().name == sample.name;
        let Some(series) = FABRIC_SERIES.iter().position(is_named) else { return };
        let key = (text("leaf"), text("rail"));
        if sample.value >= 0.0 && (self.cells.len() < MAX_CELLS || self.cells.contains_key(&key)) {
            self.cells.entry(key).or_default()[series] = Some(sample.value as f32);
        }
    }

    /// Whether the store has anything of the network: older versions did not write it.
    pub(super) fn is_known(&self) -> bool {
        !self.cells.is_empty()
    }

    /// The number of all ports.
    pub(super) fn port_count(&self) -> u32 {
        self.cells.values().map(|values| values[0].unwrap_or(0.0) as u32).sum()
    }

    /// The flagged ports, by node, device and port.
    pub(super) fn flagged_ports(&self) -> Vec<FlaggedPort> {
        let mut ports: Vec<FlaggedPort> = self.ports.values().cloned().collect();
        ports.sort_by(|left, right| {
            let of = |part: usize| natural_order(&left.name[part], &right.name[part]);
            of(0).then(of(1)).then(of(2))
        });
        ports
    }

    /// Leaves by rails.
    pub(super) fn fabric_matrix(&self, at: UnixMs) -> FabricMatrix {
        let mut findings: BTreeMap<(&SanitizedText, &SanitizedText), FindingKind> = BTreeMap::new();
        for port in self.ports.values() {
            if let Some(kind) = port.finding {
                findings.entry((&port.leaf, &port.rail)).or_insert(kind);
            }
        }
        let names = |of: fn(&(SanitizedText, SanitizedText)) -> &SanitizedText| {
            let names: BTreeSet<&SanitizedText> = self.cells.keys().map(of).collect();
            let mut names: Vec<SanitizedText> = names.into_iter().cloned().collect();
            names.sort_by(|left, right| natural_order(left, right));
            names
        };
        let (leaves, rails) = (names(|key| &key.0), names(|key| &key.1));
        let mut cells = FabricCellColumns::default();
        for (row, leaf) in leaves.iter().enumerate() {
            for (column, rail) in rails.iter().enumerate() {
                if let Some(values) = self.cells.get(&(leaf.clone(), rail.clone())) {
                    let finding = findings.get(&(leaf, rail)).copied();
                    cells.push_cell((row as u32, column as u32), *values, finding);
                }
            }
        }
        let total = self.port_count();
        FabricMatrix { at, total, matched: total, leaves, rails, cells }
    }
}
