//! Ingests batches: resolves the node of a page and selects the devices and metrics that the page may report.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{
    Batch, CowList, Device, DeviceClass, Dialect, InfoSeries, MetricId, Report, SanitizedText,
    ScrapeFailure, ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    catalogue::{CATALOGUE, gpu, port},
    unit::MetricKind,
};

use super::{
    Cluster, MAX_TARGETS,
    cluster_node::{ClassFeed, NodeId, node_name},
    column::SampleStamp,
    device_identity::DeviceNames,
    refused_devices::RefusedDevices,
    source_priority::{MetricSource, SelectedMetrics, select_metrics},
    tracked_target::{LONGEST_LOOK, NOT_TAKEN, RowLayout, TrackedTarget},
};

/// Node clocks after this instant, in the year 5138, are rejected; sums with them could overflow.
const LATEST: UnixMs = UnixMs(100_000_000_000_000);

/// Maximum number of targets per node: an exporter of each kind, and a model server for each of its GPUs.
const MAX_SPEAKERS: usize = 128;

impl Cluster {
    /// Replaces the list of targets; targets that are in both lists keep their state.
    pub(super) fn replace_targets(&mut self, mut targets: Vec<ScrapeTarget>) {
        targets.truncate(MAX_TARGETS);
        let mut known: HashMap<TargetId, TrackedTarget> =
            self.targets.drain(..).map(|scraped| (scraped.target.id, scraped)).collect();
        self.target_positions.clear();
        let mut left = Vec::new();
        for target in targets {
            let id = target.id;
            if self.target_positions.contains_key(&id) {
                continue;
            }
            self.target_positions.insert(id, self.targets.len());
            let (kept, renamed) = match known.remove(&id) {
                Some(old) if old.target == target => (Some(old), None),
                old => (None, old),
            };
            left.extend(renamed);
            self.targets.push(kept.unwrap_or_else(|| TrackedTarget::new(target)));
        }
        let mut any_freed = false;
        for scraped in left.into_iter().chain(known.into_values()) {
            let Some(node) = scraped.node else { continue };
            self.detach_target(node, scraped.target.id);
            if self.inventory.node_by_id(node).is_some_and(|node| node.sources.is_empty()) {
                self.inventory.remove_node(node, &mut self.columns);
                any_freed = true;
            }
        }
        if any_freed {
            self.invalidate_rows();
        }
    }

    /// Ingests the result of one scrape of one target.
    pub(super) fn ingest_batch(&mut self, batch: &Batch) {
        let Some(place) = self.target_positions.get(&batch.target).copied() else { return };
        let scraped = &mut self.targets[place];
        if scraped.last_attempt.is_some_and(|last| batch.at < last) {
            return; // Overtaken by a later attempt.
        }
        scraped.record_attempt(batch, self.period);
        self.late_share.count(batch.at, batch.outcome.as_ref().is_err_and(ScrapeFailure::is_own));
        if let Ok(page) = &batch.outcome {
            let flag = self.ingest_page(place, batch.at, page).err();
            let scraped = &mut self.targets[place];
            scraped.flag =
                flag.or_else(|| scraped.refused_devices().render_sentence(&scraped.target.address));
        }
    }

    /// Writes a page into the columns, or returns why not.
    fn ingest_page(
        &mut self,
        place: usize,
        at: UnixMs,
        page: &ScrapedPage,
    ) -> Result<(), SanitizedText> {
        if page.dialect == Dialect::Unknown {
            let address = &self.targets[place].target.address;
            return Err(SanitizedText::new(&format!(
                "{address}: its page has no known metric; `gaunt metrics` lists the known ones"
            )));
        }
        let node = self.resolve_node(place, page, at)?;
        let scraped = &mut self.targets[place];
        let id = scraped.target.id;
        let time = page.report.node_time.filter(|time| (UnixMs(0)..LATEST).contains(time));
        if time.is_some() && time == scraped.node_time {
            return self.check_repeat(place, at); // The same sample as before.
        }
        let same_clock = time.is_some() == scraped.node_time.is_some();
        let held = scraped.detect_repeat(page, at);
        scraped.node_time = time;
        if time.is_some() {
            scraped.last_change = Some(at);
        }
        if !held {
            scraped.moved = Some(at);
        }
        let share = self.select_page_metrics(node, id, page, at, same_clock)?;
        self.update_layout(place, node, page, &share, at);
        let patience = if page.dialect.has_own_interval() { LONGEST_LOOK } else { Duration::ZERO };
        let slot = self.history_slot(at);
        let stamp = SampleStamp {
            at,
            clock: time.unwrap_or(at),
            epoch: at,
            gap_ms: (self.freshness_window() + patience).as_millis() as i64,
            steady_ms: (self.period * 3 / 2).as_millis() as i64,
            slot,
            before: UnixMs((slot - 1) * self.period.as_millis() as i64),
            is_repeat: held,
            may_grow: self.may_grow,
        };
        self.write_values(place, page, &share, stamp);
        self.record_feed(node, place, at);
        if let Some(node) = self.inventory.node_mut(node) {
            node.sampled = Some(at);
            node.clock_skew_ms = time.map(|time| time.0 - at.0).or(node.clock_skew_ms);
        }
        Ok(())
    }

    /// A page that repeats an old sample is no error until the sample is too old.
    fn check_repeat(&self, place: usize, at: UnixMs) -> Result<(), SanitizedText> {
        let TrackedTarget { target, moved, .. } = &self.targets[place];
        if moved.is_none_or(|moved| at.duration_since(moved) <= self.freshness_window()) {
            return Ok(());
        }
        Err(SanitizedText::new(&format!(
            "{}: scraped, but gaunt_node_time_seconds does not change: its sampler hangs, or \
             samples less often than gaunt scrapes",
            target.address
        )))
    }

    /// The node that a target reports: allowed if no other target of its dialect reports that node.
    fn resolve_node(
        &mut self,
        place: usize,
        page: &ScrapedPage,
        at: UnixMs,
    ) -> Result<NodeId, SanitizedText> {
        let target = &self.targets[place].target;
        let (id, name) = (target.id, node_name(target, &page.report));
        let address = target.address.clone();
        let too_many =
            || SanitizedText::new(&format!("{address}: too many nodes; its page is rejected"));
        let before = self.targets[place].node;
        // A page usually reports the same node as the page before.
        let same =
            |id: &NodeId| self.inventory.node_by_id(*id).is_some_and(|node| node.name == name);
        let node = match before.filter(same) {
            Some(node) => node,
            None => self.inventory.ensure_node(&name).ok_or_else(too_many)?,
        };
        if let Some(before) = before.filter(|before| *before != node) {
            self.detach_target(before, id);
            let scraped = &mut self.targets[place];
            (scraped.node, scraped.node_time) = (None, None);
            scraped.layout = RowLayout::default();
        }
        let Some(speakers) = self.inventory.node_mut(node).map(|node| &mut node.sources) else {
            return Err(too_many());
        };
        let rival =
            speakers.iter().find(|other| other.dialect == page.dialect && other.target != id);
        let rival = rival.map(|rival| rival.target).filter(|_| !page.dialect.is_model_server());
        if let Some(rival) = rival {
            let rival = self
                .target_by_id(rival)
                .map_or_else(SanitizedText::default, |t| t.target.address.clone());
            self.detach_target(node, id);
            self.targets[place].node = None;
            let own = &self.targets[place].target.address;
            return Err(SanitizedText::new(&format!(
                "{rival} and {own} both report node {name}; only the first is used: remove one, or \
                 name them differently with NODE=ADDRESS"
            )));
        }
        let is_full = speakers.len() >= MAX_SPEAKERS;
        match speakers.iter_mut().find(|speaker| speaker.target == id) {
            Some(speaker) if speaker.dialect == page.dialect => {}
            Some(speaker) => *speaker = MetricSource::new(page.dialect, id, at),
            None if is_full => {
                return Err(SanitizedText::new(&format!(
                    "{address}: {MAX_SPEAKERS} targets already report node {name}, the maximum; \
                     its page is rejected. Check the node names of these targets"
                )));
            }
            None => speakers.push(MetricSource::new(page.dialect, id, at)),
        }
        self.targets[place].node = Some(node);
        Ok(node)
    }

    /// Detaches a target from a node: drops what it reported, so that sources of lower priority count again.
    fn detach_target(&mut self, id: NodeId, target: TargetId) {
        let Some(node) = self.inventory.node_mut(id).filter(|node| node.has_source(target)) else {
            return;
        };
        node.sources.retain(|speaker| speaker.target != target);
        for feed in &mut node.feeds {
            if feed.is_some_and(|feed| feed.target == target) {
                *feed = None;
            }
        }
        let rows = node.rows.clone();
        for (class, rows) in DeviceClass::ALL.into_iter().zip(rows) {
            for row in rows {
                self.inventory.update_identity(class, row, |entry| entry.forget_target(target));
            }
        }
        if let Some(place) = self.target_positions.get(&target) {
            self.targets[*place].layout = RowLayout::default();
        }
        self.for_each_source(id, |scraped| scraped.layout = RowLayout::default());
        self.jobs_changed = true;
    }

    /// Calls `act` for every target that reports a node.
    fn for_each_source(&mut self, id: NodeId, mut act: impl FnMut(&mut TrackedTarget)) {
        let speakers = self.inventory.node_by_id(id).map(|node| node.sources.as_slice());
        for speaker in speakers.unwrap_or_default() {
            if let Some(place) = self.target_positions.get(&speaker.target) {
                act(&mut self.targets[*place]);
            }
        }
    }

    /// Selects the metrics of a page that are ingested.
    fn select_page_metrics(
        &mut self,
        node: NodeId,
        id: TargetId,
        page: &ScrapedPage,
        at: UnixMs,
        same_clock: bool,
    ) -> Result<SelectedMetrics, SanitizedText> {
        let fresh_for = self.freshness_window();
        let gone = || SanitizedText::new("its node was removed while its page was ingested");
        let node = self.inventory.node_mut(node).ok_or_else(gone)?;
        let place = node.sources.iter().position(|speaker| speaker.target == id);
        let place = place.ok_or_else(gone)?;
        Ok(select_metrics(&mut node.sources, place, &page.report, at, fresh_for, same_clock))
    }

    /// Maps the page's devices to rows and updates their identity where it differs from the page before.
    fn update_layout(
        &mut self,
        place: usize,
        node: NodeId,
        page: &ScrapedPage,
        share: &SelectedMetrics,
        at: UnixMs,
    ) {
        let report = &page.report;
        let mut layout = std::mem::take(&mut self.targets[place].layout);
        let named = layout.devices == report.devices && layout.infos == report.infos;
        let moved = !named || layout.taken != share.taken;
        self.topology_changed |=
            moved && (is_selection_changed(&layout, share) || is_topology_changed(&layout, report));
        if moved {
            self.map_devices(place, node, page, share, &mut layout, at);
        }
        for (device, row) in layout.names.iter().zip(&layout.rows) {
            self.inventory.mark_seen(device.class, *row, at);
        }
        if moved {
            let teller = (page.dialect, self.targets[place].target.id);
            for (device, row) in layout.names.iter().zip(&layout.rows) {
                self.inventory
                    .update_identity(device.class, *row, |entry| entry.forget_target(teller.1));
            }
            for info in &report.infos {
                self.record_info(&layout, info, teller);
            }
            // Info series that this page no longer has may come from other targets.
            if report.infos.len() < layout.infos.len() {
                self.for_each_source(node, |other| other.layout.infos = CowList::default());
            }
            layout.infos.clone_from(&report.infos);
            self.jobs_changed = true;
        }
        self.targets[place].layout = layout;
    }

    /// Maps the devices with ingested metrics to rows.
    fn map_devices(
        &mut self,
        place: usize,
        node: NodeId,
        page: &ScrapedPage,
        share: &SelectedMetrics,
        layout: &mut RowLayout,
        at: UnixMs,
    ) {
        let report = &page.report;
        let name =
            self.inventory.node_by_id(node).map(|node| node.name.clone()).unwrap_or_default();
        let address = &self.targets[place].target.address;
        let names = DeviceNames { node: &name, address };
        layout.names = names.resolve_devices(&mut self.inventory, node, report);
        let mut wanted = vec![false; report.devices.len()];
        layout.measured = vec![false; DeviceClass::ALL.len()];
        for sample in report.samples.iter().filter(|sample| share.taken.has_metric(sample.metric)) {
            if let Some(wanted) = wanted.get_mut(sample.device as usize) {
                *wanted = true;
                if let Some(metric) = CATALOGUE.get(usize::from(sample.metric.0)) {
                    layout.measured[metric.class as usize] = true;
                }
            }
        }
        // The identity of a device may be on another page than its measurements.
        for info in &report.infos {
            if let Some(wanted) = wanted.get_mut(info.device as usize) {
                *wanted = true;
            }
        }
        layout.refused = RefusedDevices::default();
        let row = |(device, wanted): (&Device, &bool)| {
            if !*wanted || device.class == DeviceClass::Fleet {
                return NOT_TAKEN;
            }
            self.inventory.ensure_row(node, device, at).unwrap_or_else(|| {
                layout.refused.count_device(device.class);
                NOT_TAKEN
            })
        };
        layout.rows = layout.names.iter().zip(&wanted).map(row).collect();
        layout.devices.clone_from(&report.devices);
        layout.taken.clone_from(&share.taken);
    }

    fn record_info(&mut self, layout: &RowLayout, info: &InfoSeries, teller: (Dialect, TargetId)) {
        let (at, metric) = (info.device as usize, info.metric);
        let (Some(device), Some(row)) = (layout.names.get(at), layout.rows.get(at)) else {
            return;
        };
        let known = CATALOGUE.get(usize::from(metric.0));
        if known.is_none_or(|known| known.kind != MetricKind::Info || known.class != device.class) {
            return;
        }
        self.inventory.update_identity(device.class, *row, |entry| {
            entry.record_info(metric, teller, &info.labels);
        });
    }

    fn write_values(
        &mut self,
        place: usize,
        page: &ScrapedPage,
        share: &SelectedMetrics,
        mut stamp: SampleStamp,
    ) {
        let layout = &self.targets[place].layout;
        // Samples of one metric are usually adjacent.
        for run in page.report.samples.chunk_by(|one, other| one.metric == other.metric) {
            let Some(metric) = run.first().map(|sample| sample.metric) else { continue };
            let (Some(row), Some(column)) =
                (CATALOGUE.get(usize::from(metric.0)), self.columns.get_mut(usize::from(metric.0)))
            else {
                continue;
            };
            if row.kind == MetricKind::Info || !share.taken.has_metric(metric) {
                continue;
            }
            let class = row.class;
            stamp.epoch = share.rate_epoch(metric);
            column.grow_to(self.inventory.row_count(class));
            for sample in run {
                let at = sample.device as usize;
                let (Some(device), Some(row)) = (layout.devices.get(at), layout.rows.get(at))
                else {
                    continue;
                };
                if *row != NOT_TAKEN && device.class == class {
                    column.write_reading(*row, sample.reading, &stamp);
                }
            }
        }
    }

    /// Records which device classes this target reported values of.
    fn record_feed(&mut self, node: NodeId, place: usize, at: UnixMs) {
        let TrackedTarget { target, layout, .. } = &self.targets[place];
        let Some(node) = self.inventory.node_mut(node) else { return };
        for (device, row) in layout.devices.iter().zip(&layout.rows) {
            if *row != NOT_TAKEN && layout.measured.get(device.class as usize) == Some(&true) {
                node.feeds[device.class as usize] = Some(ClassFeed { target: target.id, last: at });
            }
        }
    }
}

/// Whether devices of this class are part of the topology.
const fn is_in_topology(class: DeviceClass) -> bool {
    matches!(class, DeviceClass::Node | DeviceClass::Port | DeviceClass::Gpu)
}

/// Whether the selection differs from before for devices that are part of the topology: devices appear or disappear.
fn is_selection_changed(before: &RowLayout, share: &SelectedMetrics) -> bool {
    before.taken != share.taken
        && MetricId::all_ids()
            .filter(|metric| is_in_topology(metric.catalogue_row().class))
            .any(|metric| before.taken.has_metric(metric) != share.taken.has_metric(metric))
}

/// Whether a page names other nodes, ports or GPUs than the page before, or other identities of them.
fn is_topology_changed(before: &RowLayout, report: &Report) -> bool {
    let placed = |device: &&Device| is_in_topology(device.class);
    let says = |info: &&InfoSeries| matches!(info.metric, port::INFO | gpu::INFO);
    let devices = before.devices.iter().filter(placed);
    let infos = before.infos.iter().filter(says);
    !devices.eq(report.devices.iter().filter(placed)) || !infos.eq(report.infos.iter().filter(says))
}
