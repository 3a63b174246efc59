//! The past in a recording: history points and the series of lost GPUs, in a versioned binary format.

use std::{collections::BTreeSet, time::Duration};

use gaunt_schema::{Batch, Delivery, LifeState, SanitizedText, ScrapeTarget, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Engine, EngineOptions, LostGpuSeries};
use gaunt_cluster::{Cluster, KeptPast};

/// The version of the format; other versions are rejected.
const VERSION: u32 = 1;

/// Maximum size of history points in one preamble in bytes, before compression: half an hour of two series of 1,000
/// GPUs at 1 s, or what is kept of every series of some dozen nodes.
pub const MAX_PAST: usize = 4 << 20;

/// How long what a store kept counts as current: it has a page a minute, and one may be missing.
const STORED_FRESH: Duration = Duration::from_mins(3);

/// About the size of a series in the index, in bytes.
const INDEX_BYTES: usize = 16;

/// Size of the version and of the index's length in bytes.
const HEAD: usize = 8;

/// The recorded past.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedPast {
    lost: LostGpuSeries,
    cluster: KeptPast,
}

/// Why the bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadablePast {
    /// They have this other version.
    #[error("has version {0}, this gaunt reads {VERSION}; use the gaunt that recorded it")]
    Version(u32),
    /// They are malformed.
    #[error("has an unknown format; use the gaunt that recorded it")]
    Damaged,
}

impl RecordedPast {
    /// The past of nodes whose pages a store kept, in about `most` bytes, for an engine with these options. The pages are in
    /// order of time.
    pub fn from_pages(
        options: &EngineOptions,
        targets: Vec<ScrapeTarget>,
        pages: Vec<Batch>,
        most: usize,
    ) -> Self {
        let cluster = Cluster::new(options.period, options.slots);
        let freshness = cluster.freshness_window().max(STORED_FRESH);
        let mut cluster = cluster.with_freshness(freshness);
        cluster.ingest_delivery(Delivery::Targets(targets));
        let mut newest = UnixMs::default();
        for page in pages {
            if page.at > newest {
                cluster.advance_to(newest);
                newest = page.at;
            }
            cluster.ingest_delivery(Delivery::Batch(page));
        }
        cluster.advance_to(newest);
        Self { lost: LostGpuSeries::default(), cluster: cluster.keep_past(most, &BTreeSet::new()) }
    }

    /// The past of the fleet's lost GPUs, from samples in order of time.
    pub fn from_losses(samples: impl IntoIterator<Item = (UnixMs, f64)>) -> Self {
        let mut lost = LostGpuSeries::default();
        for (at, gpus) in samples {
            lost.record_loss(at, Some(gpus).filter(|gpus| gpus.is_finite() && *gpus >= 0.0));
        }
        Self { lost, cluster: KeptPast::default() }
    }

    /// About its size in memory, in bytes.
    pub fn estimated_bytes(&self) -> usize {
        self.cluster.points().len() + self.series() * INDEX_BYTES
    }

    /// Number of series with points.
    pub fn series(&self) -> usize {
        self.cluster.series()
    }

    /// Time of the oldest points; none without any.
    pub fn begins(&self) -> Option<UnixMs> {
        self.cluster.begins()
    }

    /// Encodes version, length of the index, index, points.
    pub fn to_bytes(&self) -> Vec<u8> {
        let index = serde_json::to_vec(self).expect("plain structs become JSON");
        let points = self.cluster.points();
        let mut bytes = Vec::with_capacity(HEAD + index.len() + points.len());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(index.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&index);
        bytes.extend_from_slice(points);
        bytes
    }

    /// Decodes what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UnreadablePast> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(UnreadablePast::Damaged)
        };
        let version = number(0)?;
        if version != VERSION {
            return Err(UnreadablePast::Version(version));
        }
        let length = number(4)? as usize;
        let (index, points) =
            bytes[HEAD..].split_at_checked(length).ok_or(UnreadablePast::Damaged)?;
        let read: Self = serde_json::from_slice(index).map_err(|_| UnreadablePast::Damaged)?;
        let cluster = read.cluster.with_points(points.to_vec()).ok_or(UnreadablePast::Damaged)?;
        Ok(Self { lost: read.lost.bounded(), cluster })
    }
}

impl Engine {
    /// The past to record, in about `most` bytes: first that of the nodes that open findings name.
    pub fn recorded_past(&self, most: usize) -> RecordedPast {
        let open = self.findings.findings.iter();
        let open = open.filter(|finding| finding.life.state != LifeState::Closed);
        let entities = open.flat_map(|finding| finding.victims.iter().chain([&finding.entity]));
        let nodes: BTreeSet<SanitizedText> =
            entities.filter_map(|entity| entity.node.clone()).collect();
        let cluster = self.cluster.keep_past(most, &nodes);
        RecordedPast { lost: self.lost_series.clone(), cluster }
    }

    /// The same engine with a past from before its first page.
    #[must_use]
    pub fn recalling_past(mut self, past: &RecordedPast) -> Self {
        self.recall_past(past);
        self
    }

    /// Adds a past from before the first page; each device gets its points once a page names it.
    pub(super) fn recall_past(&mut self, past: &RecordedPast) {
        self.lost_series = std::mem::take(&mut self.lost_series).with_earlier(&past.lost);
        self.cluster.recall_past(&past.cluster);
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::{Answer, Question};
    use gaunt_schema::{
        Device, Dialect, MetricId, Reading, RejectionCounts, Report, ScrapedPage, TargetId,
        catalogue::{gpu, port},
    };

    use super::*;

    const NODE: &str = "n1";

    fn target() -> ScrapeTarget {
        let address = "10.0.0.1:9770".into();
        ScrapeTarget { id: TargetId(1), address, node: Some(NODE.into()), origin: "test".into() }
    }

    /// A page with the power of a GPU, and the bytes of a port that receives 100 bytes a second.
    fn page(second: i64) -> Batch {
        let mut report = Report::default();
        for (device, metric, value) in [
            (Device::new_gpu(0), gpu::POWER, 400.0 + (second % 7) as f64),
            (Device::new_port("mlx5_0", "1"), port::RECEIVE_BYTES, 1e6 + 100.0 * second as f64),
        ] {
            let device = report.ensure_device(device);
            report.push(device, metric, Reading::of(value));
        }
        let (dialect, rejected) = (Dialect::Gaunt, RejectionCounts::default());
        let outcome = Ok(ScrapedPage { report, dialect, bytes: 0, rejected });
        Batch { target: TargetId(1), at: UnixMs(second * 1_000), duration_ms: 1.0, outcome }
    }

    /// What a store keeps once a minute comes back to an engine that runs already; the rate of a counter too.
    #[test]
    fn pages_of_a_store_are_history_of_a_running_engine() {
        let period = Duration::from_secs(10);
        let options = EngineOptions { period, slots: 90, ..EngineOptions::default() };
        let pages = (0..14).map(|minute| page(10_020 + minute * 60)).collect();
        let past = RecordedPast::from_pages(&options, vec![target()], pages, 1 << 20);
        assert!(past.series() == 2 && past.estimated_bytes() > 100, "{past:?}");
        assert_eq!(RecordedPast::from_bytes(&past.to_bytes()).as_ref(), Ok(&past));

        let mut engine = Engine::new(options);
        engine.ingest_delivery(Delivery::Targets(vec![target()]));
        for second in (10_880..10_910).step_by(10) {
            engine.ingest_delivery(Delivery::Batch(page(second)));
            engine.run_tick(UnixMs(second * 1_000));
        }
        let samples = [(10_500, 3.0), (10_510, f64::NAN), (10_520, -1.0), (10_530, 4.0)];
        let losses = samples.map(|(second, gpus)| (UnixMs(second * 1_000), gpus));
        engine.recall_past(&RecordedPast::from_losses(losses));
        engine.recall_past(&past);
        engine.run_tick(UnixMs(10_910_000));

        let points_of = |metric: MetricId| {
            let (_, node) = engine.cluster.node_by_name(NODE).unwrap();
            let row = node.device_rows(metric.catalogue_row().class)[0];
            engine.cluster.recent_points(metric, node, row, 90).unwrap()
        };
        let power: Vec<f32> = points_of(gpu::POWER).into_iter().flatten().collect();
        assert_eq!(power.len(), 14 + 3, "{power:?}");
        assert!(power.iter().all(|watts| (400.0..407.0).contains(watts)), "{power:?}");
        let rates: Vec<f32> = points_of(port::RECEIVE_BYTES).into_iter().flatten().collect();
        assert_eq!(rates.len(), 13 + 2, "{rates:?}");
        assert!(rates.iter().all(|rate| (rate - 100.0).abs() < 0.1), "{rates:?}");
        let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
            panic!("no overview");
        };
        let lost: Vec<f32> = overview.lost.history.iter().copied().flatten().collect();
        assert_eq!(lost[..2], [3.0, 4.0], "{lost:?}");
    }

    #[test]
    fn recorded_past_is_read_back_and_refused_where_it_is_damaged() {
        let mut lost = LostGpuSeries::default();
        lost.record_loss(UnixMs(10_000), Some(2.5));
        let past = RecordedPast { lost, cluster: KeptPast::default() };
        let bytes = past.to_bytes();
        assert_eq!(RecordedPast::from_bytes(&bytes), Ok(past));
        for end in 0..bytes.len() {
            assert_eq!(RecordedPast::from_bytes(&bytes[..end]), Err(UnreadablePast::Damaged));
        }
        let more = [bytes.as_slice(), &[0]].concat();
        assert_eq!(RecordedPast::from_bytes(&more), Err(UnreadablePast::Damaged));
        let newer = [&[9, 0, 0, 0], &bytes[4..]].concat();
        let why = RecordedPast::from_bytes(&newer).unwrap_err();
        assert_eq!(why, UnreadablePast::Version(9));
        assert!(why.to_string().ends_with("use the gaunt that recorded it"), "{why}");
    }
}
