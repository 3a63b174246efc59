//! Cards of four drivers with their statistic names, and a card that refuses or changes.

use std::{
    cell::RefCell,
    fs,
    sync::{Arc, Mutex},
};

use gaunt_schema::{AbsenceReason, catalogue::ethernet};

use super::*;

/// The statistics of each device: names with values, or an error.
type ScriptedCards = BTreeMap<String, Result<Vec<(String, u64)>, i32>>;

/// Scripted driver statistics.
struct ScriptedStatistics(Arc<Mutex<ScriptedCards>>);

impl ScriptedStatistics {
    fn scripted_card(&self, device: &str) -> io::Result<Vec<(String, u64)>> {
        let cards = self.0.lock().unwrap();
        let card = cards.get(device).ok_or(io::Error::from_raw_os_error(libc::ENODEV))?;
        card.clone().map_err(io::Error::from_raw_os_error)
    }
}

impl DriverStatistics for ScriptedStatistics {
    fn device_index(&self, device: &str) -> io::Result<u32> {
        // The device of this name is a different one.
        Ok(if device == "foreign0" { 99 } else { 7 })
    }

    fn statistic_names(&self, device: &str) -> io::Result<Vec<String>> {
        Ok(self.scripted_card(device)?.into_iter().map(|(name, _)| name).collect())
    }

    fn read_statistics(&self, device: &str, count: usize, values: &mut Vec<u64>) -> io::Result<()> {
        let card = self.scripted_card(device)?;
        if card.len() != count {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        values.clear();
        values.extend(card.iter().map(|(_, value)| value));
        Ok(())
    }
}

struct EthernetTestHost {
    _tree: tempfile::TempDir,
    cards: Arc<Mutex<ScriptedCards>>,
    collector: RefCell<EthernetCollector>,
}

impl EthernetTestHost {
    fn new(devices: &[&str], exclude: &[&str]) -> Self {
        let tree = tempfile::tempdir().unwrap();
        for device in devices {
            let folder = tree.path().join("class/net").join(device);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("ifindex"), "7\n").unwrap();
            if !device.starts_with("veth") {
                fs::create_dir(folder.join("device")).unwrap();
            }
        }
        let cards = Arc::default();
        let options = SamplerOptions {
            sys_root: tree.path().to_path_buf(),
            exclude: exclude.iter().map(|name| (*name).to_owned()).collect(),
            ..SamplerOptions::default()
        };
        let statistics =
            Ok(Box::new(ScriptedStatistics(Arc::clone(&cards))) as Box<dyn DriverStatistics>);
        let collector = RefCell::new(EthernetCollector::with_statistics(&options, statistics));
        Self { _tree: tree, cards, collector }
    }

    fn set_statistics(&self, device: &str, statistics: &[(&str, u64)]) {
        let card = statistics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.cards.lock().unwrap().insert(device.to_owned(), Ok(card));
    }

    fn set_error(&self, device: &str, errno: i32) {
        self.cards.lock().unwrap().insert(device.to_owned(), Err(errno));
    }

    fn collect_report(&self) -> (Report, Result<CollectOutcome, CollectError>) {
        let mut report = Report::default();
        let outcome = self.collector.borrow_mut().collect_readings(&mut report);
        (report, outcome)
    }
}

fn of(report: &Report, device: &str, metric: MetricId) -> Option<Reading> {
    report.find_reading(&Device::new_netdev(device), metric)
}

#[test]
fn statistics_of_four_drivers_map_to_same_metrics() {
    let host = EthernetTestHost::new(&["mlx", "mlx4", "bnxt", "ice"], &[]);
    host.set_statistics(
        "mlx",
        &[
            ("rx_packets", 1),
            ("rx_prio3_pause", 41_927),
            ("rx_prio3_pause_duration", 2_500_000),
            ("tx_prio3_pause_duration", 1),
            ("rx_prio3_pause_transition", 39),
            ("rx_prio7_discards", 8),
            ("rx_err_lane_3_phy", 5),
            ("rx_discards_phy", 77),
            ("rx_corrected_bits_phy", 123_456_789),
            ("rx_pcs_symbol_err_phy", 2),
            ("rx_bits_phy", u64::MAX),
            ("tx_pause_storm_error_events", 1),
        ],
    );
    host.set_statistics("mlx4", &[("rx_pause_prio_3", 4), ("tx_pause_duration_prio_0", 500_000)]);
    host.set_statistics(
        "bnxt",
        &[
            ("rx_pfc_ena_frames_pri3", 6),
            ("pfc_pri3_rx_duration_us", 1_500_000),
            ("pfc_pri3_tx_duration_us", 2_500_000),
            ("rx_fec_uncorrectable_blocks", 9),
            ("rx_stat_discard", 10),
            ("link_down_events", 3),
        ],
    );
    host.set_statistics("ice", &[("tx_priority_5_xoff.nic", 11), ("rx_crc_errors.nic", 12)]);
    let (report, outcome) = host.collect_report();
    assert!(matches!(outcome, Ok(CollectOutcome::Found)), "{outcome:?}");
    for (device, metric, value) in [
        ("mlx", ethernet::RECEIVE_PAUSE_3, 41_927.0),
        ("mlx", ethernet::RECEIVE_PAUSED_3, 2.5),
        ("mlx", ethernet::TRANSMIT_PAUSED_3, 1e-6),
        ("mlx", ethernet::RECEIVE_PAUSE_TRANSITIONS_3, 39.0),
        ("mlx", ethernet::PRIORITY_DISCARDS_7, 8.0),
        ("mlx", ethernet::LANE_ERRORS_3, 5.0),
        ("mlx", ethernet::PHY_RECEIVE_DISCARDS, 77.0),
        ("mlx", ethernet::CORRECTED_BITS, 123_456_789.0),
        ("mlx", ethernet::PCS_SYMBOL_ERRORS, 2.0),
        ("mlx", ethernet::PHY_BITS, u64::MAX as f64),
        ("mlx", ethernet::PAUSE_STORMS_ERROR, 1.0),
        ("mlx4", ethernet::RECEIVE_PAUSE_3, 4.0),
        ("mlx4", ethernet::TRANSMIT_PAUSED_0, 0.5),
        ("bnxt", ethernet::RECEIVE_PAUSE_3, 6.0),
        ("bnxt", ethernet::RECEIVE_PAUSED_3, 1.5),
        ("bnxt", ethernet::TRANSMIT_PAUSED_3, 2.5),
        ("bnxt", ethernet::FEC_UNCORRECTABLE, 9.0),
        ("bnxt", ethernet::PHY_RECEIVE_DISCARDS, 10.0),
        ("bnxt", ethernet::LINK_DOWN, 3.0),
        ("ice", ethernet::TRANSMIT_PAUSE_5, 11.0),
        ("ice", ethernet::CRC_ERRORS, 12.0),
    ] {
        assert_eq!(
            of(&report, device, metric),
            Some(value.into()),
            "{device} {}",
            metric.series_key()
        );
    }
    assert_eq!(report.samples.len(), 21, "nothing else");
}

#[test]
fn cards_of_other_namespaces_and_excluded_ones_are_not_queried() {
    let devices = ["eth0", "foreign0", "veth1", "ens1"];
    let host = EthernetTestHost::new(&devices, &["ens*"]);
    for device in devices {
        host.set_statistics(device, &[("rx_discards_phy", 1)]);
    }
    let (report, _) = host.collect_report();
    assert_eq!(report.devices, [Device::new_netdev("eth0")]);
}

#[test]
fn card_error_affects_only_that_card() {
    let host = EthernetTestHost::new(&["eth0", "eth1"], &[]);
    host.set_statistics("eth0", &[("rx_discards_phy", 1)]);
    host.set_statistics("eth1", &[("rx_discards_phy", 2)]);
    _ = host.collect_report();
    host.set_error("eth0", libc::EIO);
    let (report, outcome) = host.collect_report();
    assert_eq!(
        of(&report, "eth0", ethernet::PHY_RECEIVE_DISCARDS),
        Some(AbsenceReason::Error.into())
    );
    assert_eq!(of(&report, "eth1", ethernet::PHY_RECEIVE_DISCARDS), Some(2.0.into()));
    let message = outcome.unwrap_err().to_string();
    assert!(message.starts_with("eth0: ") && !message.contains("eth1"), "{message}");
}

#[test]
fn card_with_changed_queues_is_discovered_again() {
    let host = EthernetTestHost::new(&["eth0"], &[]);
    host.set_statistics("eth0", &[("rx0_packets", 5), ("rx_discards_phy", 1)]);
    _ = host.collect_report();
    host.set_statistics("eth0", &[("rx0_packets", 5), ("rx1_packets", 6), ("rx_discards_phy", 3)]);
    let (report, _) = host.collect_report();
    let discards = |report: &Report| of(report, "eth0", ethernet::PHY_RECEIVE_DISCARDS);
    assert_eq!(
        discards(&report),
        Some(AbsenceReason::Error.into()),
        "never a value of another name"
    );
    assert_eq!(discards(&host.collect_report().0), Some(3.0.into()));
}

#[test]
fn similar_statistic_names_are_not_matched() {
    for name in ["rx_prio8_pause", "rx_prio03_pause", "rx_prio_pause", "rx_prio3_pause_x", "pause"]
    {
        assert_eq!(metric_of_statistic(name), None, "{name}");
    }
}
