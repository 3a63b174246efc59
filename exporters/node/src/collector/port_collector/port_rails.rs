//! Rail detection: which of the parallel networks each port is connected to.

use std::{collections::BTreeMap, path::Path};

use gaunt_schema::SanitizedText;

use crate::{
    kernel_files::{list_names, read_once},
    pci_location::{PciLocation, PciProximity},
};

/// A port, by device and number.
pub(super) type PortKey = (SanitizedText, SanitizedText);

/// The rail of each port that has one, and the method that determined it.
pub(super) type PortRails = BTreeMap<PortKey, (u32, &'static str)>;

/// From the settings.
const SETTINGS: &str = "settings";

/// From the port's position in the order of the nearest GPUs.
const GPUS: &str = "gpu_order";

/// From the port's position in PCI bus order.
const BUS: &str = "bus_order";

/// What sysfs shows of a card without any firmware access.
pub(super) struct RailCandidate {
    name: String,
    location: PciLocation,
    /// The card's model.
    board: (Option<String>, Option<String>),
    /// Its port numbers.
    ports: Vec<String>,
    /// The address of the first GPU below the same bridge.
    gpu: Option<String>,
}

impl RailCandidate {
    /// The RDMA device at `folder`, with its nearest of these GPUs.
    pub(super) fn of(name: &str, folder: &Path, gpus: &[(String, PciLocation)]) -> Self {
        let location = PciLocation::of(&folder.join("device"));
        let nearest =
            location.find_nearest(gpus.iter().map(|(address, location)| (address, location)));
        let gpu = nearest.filter(|(_, proximity)| *proximity == PciProximity::Bridge);
        Self {
            name: name.to_owned(),
            board: (read_once(&folder.join("hca_type")), read_once(&folder.join("board_id"))),
            ports: list_names(&folder.join("ports")).unwrap_or_default(),
            gpu: gpu.and_then(|(gpus, _)| gpus.first().map(|gpu| (*gpu).clone())),
            location,
        }
    }
}

/// The rails from the settings: `mlx5_0` for all ports of a device, or `mlx5_0/2` for one.
pub(super) fn configured_rails(cards: &[RailCandidate], order: &[String]) -> PortRails {
    let rail = |card: &RailCandidate, port: &str| {
        let port_name = format!("{}/{port}", card.name);
        order.iter().position(|name| *name == port_name || *name == card.name)
    };
    let ports = cards.iter().flat_map(|card| card.ports.iter().map(move |port| (card, port)));
    let rails = ports.filter_map(|(card, port)| {
        let key = (SanitizedText::new(&card.name), SanitizedText::new(port));
        Some((key, (rail(card, port)? as u32, SETTINGS)))
    });
    rails.collect()
}

/// The rail of each port: its position among the ports of the most frequent card model of the host. Those are the
/// compute fabric; front-end and storage cards are of another model, or fewer. They are ordered by their GPUs if each
/// of them shares a bridge with one, and otherwise by the bus. The rate is not used: a link that is down reports
/// 2.5 Gb/s, and must not shift its neighbours' rails.
pub(super) fn detect_rails(cards: &[RailCandidate]) -> PortRails {
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for card in cards.iter().filter(|card| !card.location.is_virtual) {
        let ports = kinds.entry(&card.board).or_default();
        ports.extend(card.ports.iter().map(|port| (card, port)));
    }
    // Two models of equal count are ambiguous, and no rail is better than a wrong one.
    let max_ports = kinds.values().map(Vec::len).max().unwrap_or(0);
    let mut largest = kinds.into_values().filter(|ports| ports.len() == max_ports);
    let (Some(mut ports), None) = (largest.next(), largest.next()) else { return PortRails::new() };
    let source = if ports.iter().all(|(card, _)| card.gpu.is_some()) { GPUS } else { BUS };
    ports.sort_by_key(|(card, port)| {
        let gpu = card.gpu.as_ref().filter(|_| source == GPUS);
        (gpu, &card.location.address, &card.name, *port)
    });
    let key = |(card, port): (&RailCandidate, &String)| {
        (SanitizedText::new(&card.name), SanitizedText::new(port))
    };
    ports.into_iter().map(key).zip((0..).map(|rail| (rail, source))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail_candidate(name: &str, pci: &str, board: &str) -> RailCandidate {
        let mut location = PciLocation::default();
        location.address = Some(pci.to_owned());
        RailCandidate {
            name: name.to_owned(),
            location,
            board: (Some("MT4129".to_owned()), Some(board.to_owned())),
            ports: vec!["1".to_owned()],
            gpu: None,
        }
    }

    fn expected_rails<const N: usize>(rails: [(&str, u32); N], source: &'static str) -> PortRails {
        rails
            .map(|(name, rail)| {
                ((SanitizedText::new(name), SanitizedText::new("1")), (rail, source))
            })
            .into()
    }

    fn host_candidates() -> Vec<RailCandidate> {
        let mut share = rail_candidate("mlx5_4", "0000:18:00.1", "compute");
        share.location.is_virtual = true;
        vec![
            rail_candidate("mlx5_0", "0000:9a:00.0", "compute"),
            rail_candidate("mlx5_1", "0000:18:00.0", "compute"),
            rail_candidate("mlx5_2", "0000:29:00.0", "storage"),
            rail_candidate("mlx5_3", "0000:3a:00.0", "compute"),
            share,
        ]
    }

    #[test]
    fn rails_follow_bus_order_of_most_common_boards() {
        let bus_order = expected_rails([("mlx5_1", 0), ("mlx5_3", 1), ("mlx5_0", 2)], BUS);
        assert_eq!(detect_rails(&host_candidates()), bus_order);
        let mut cards = host_candidates();
        cards[0].gpu = Some("0000:01:00.0".to_owned());
        assert_eq!(detect_rails(&cards), bus_order, "an order of some ports is not used");
    }

    #[test]
    fn rails_follow_gpu_order_where_every_card_has_a_gpu() {
        let mut cards = host_candidates();
        for (card, gpu) in cards.iter_mut().zip(["1", "9", "0", "5", "0"]) {
            card.gpu = Some(format!("0000:0{gpu}:00.0"));
        }
        let expected = expected_rails([("mlx5_0", 0), ("mlx5_3", 1), ("mlx5_1", 2)], GPUS);
        assert_eq!(detect_rails(&cards), expected);
    }

    #[test]
    fn configured_rails_take_precedence() {
        let mut cards = host_candidates();
        cards[2].ports.push("2".to_owned());
        let order = ["mlx5_3", "mlx5_9", "mlx5_2/2", "mlx5_2"].map(str::to_owned);
        let mut expected = expected_rails([("mlx5_3", 0), ("mlx5_2", 3)], SETTINGS);
        expected.insert((SanitizedText::new("mlx5_2"), SanitizedText::new("2")), (2, SETTINGS));
        assert_eq!(configured_rails(&cards, &order), expected);
    }

    #[test]
    fn boards_of_equal_count_have_no_rails() {
        let cards =
            [rail_candidate("a", "0000:18:00.0", "x"), rail_candidate("b", "0000:19:00.0", "y")];
        assert_eq!(detect_rails(&cards), PortRails::new());
    }
}
