//! Ingests batches: resolves the node of a page and selects the devices and metrics that the page may report.

use std::{collections::BTreeMap, time::Duration};

use gaunt_schema::{
    Batch, CowList, Device, DeviceClass, Dialect, InfoSeries, MetricId, Report, SanitizedText,
    ScrapeFailure, ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    catalogue::{CATALOGUE, gpu, port},
    unit::MetricKind,
};

use super::{
    Cluster, MAX_TARGETS,
    cluster_node::{ClassFeed, NodeId},
    column::SampleStamp,
    device_identity::DeviceNames,
    node_join::group_by_host,
    refused_devices::RefusedDevices,
    source_priority::{MetricSource, SelectedMetrics, select_metrics},
    tracked_target::{LONGEST_LOOK, NOT_TAKEN, RowLayout, TrackedTarget},
};

/// Node clocks after this instant, in the year 5138, are rejected; sums with them could overflow.
const LATEST: UnixMs = UnixMs(100_000_000_000_000);

/// Maximum number of targets per node: an exporter of each kind, and a model server for each of its GPUs.
const MAX_SOURCES: usize = 128;

/// How many names of a page of which nothing is understood its flag has.
const SHOWN_NAMES: usize = 4;

impl Cluster {
    /// Replaces the list of targets; targets that are in both lists keep their state.
    pub(super) fn replace_targets(&mut self, mut targets: Vec<ScrapeTarget>) {
        targets.truncate(MAX_TARGETS);
        // In the order of their numbers: which rows are free first must not be a matter of chance.
        let mut previous: BTreeMap<TargetId, TrackedTarget> =
            self.targets.drain(..).map(|tracked| (tracked.target.id, tracked)).collect();
        self.target_positions.clear();
        let mut removed = Vec::new();
        for target in targets {
            let id = target.id;
            if self.target_positions.contains_key(&id) {
                continue;
            }
            self.target_positions.insert(id, self.targets.len());
            let (unchanged, renamed) = match previous.remove(&id) {
                Some(old) if old.target == target => (Some(old), None),
                old => (None, old),
            };
            removed.extend(renamed);
            self.targets.push(unchanged.unwrap_or_else(|| TrackedTarget::new(target)));
        }
        self.targets_at_host = group_by_host(&self.targets);
        let mut any_freed = false;
        for tracked in removed.into_iter().chain(previous.into_values()) {
            let Some(node) = tracked.node else { continue };
            self.detach_target(node, tracked.target.id);
            if self.inventory.node_by_id(node).is_some_and(|node| node.sources.is_empty()) {
                self.inventory.remove_node(node, &mut self.columns);
                any_freed = true;
            }
        }
        if any_freed {
            self.invalidate_rows();
        }
    }

    /// The periods of its target that a result speaks for, before it is ingested: several if gaunt itself was late.
    pub fn periods_of(&self, batch: &Batch) -> u32 {
        let index = self.target_positions.get(&batch.target).filter(|_| is_own(batch));
        index.map_or(1, |index| self.targets[*index].periods_until(batch, self.period))
    }

    /// Ingests the result of one scrape of one target.
    pub(super) fn ingest_batch(&mut self, batch: &Batch) {
        let Some(index) = self.target_positions.get(&batch.target).copied() else { return };
        let periods = self.periods_of(batch);
        let tracked = &mut self.targets[index];
        if tracked.last_attempt.is_some_and(|last| batch.at < last) {
            return; // Overtaken by a later attempt.
        }
        tracked.record_attempt(batch, periods, self.period);
        self.late_share.count(batch.at, periods, is_own(batch));
        if let Ok(page) = &batch.outcome {
            let flag = self.ingest_page(index, batch.at, page).err();
            let tracked = &mut self.targets[index];
            tracked.flag = flag
                .or_else(|| tracked.rival_flag(batch.at))
                .or_else(|| tracked.refused_devices().render_sentence(&tracked.target.address));
        }
    }

    /// Writes a page into the columns, or returns why not.
    fn ingest_page(
        &mut self,
        index: usize,
        at: UnixMs,
        page: &ScrapedPage,
    ) -> Result<(), SanitizedText> {
        if page.dialect == Dialect::Unknown {
            let address = &self.targets[index].target.address;
            let names = &page.rejected.fields.names;
            let first: Vec<&str> =
                names.iter().take(SHOWN_NAMES).map(SanitizedText::as_str).collect();
            let more = if names.len() > SHOWN_NAMES { ", …" } else { "" };
            let listed = match first.join(", ") {
                none if none.is_empty() => none,
                some => format!(" ({some}{more})"),
            };
            return Err(SanitizedText::new(&format!(
                "{address}: its page has no known metric{listed}; `gaunt metrics --dialects` lists the known \
                 ones of all exporters. Remove the target if its exporter is not among them."
            )));
        }
        // Each page of gaunt-node names its node; that of an aggregator describes a fleet.
        let is_nameless = page.report.node.is_none() && page.report.samples.is_empty();
        if page.dialect == Dialect::Gaunt && is_nameless {
            let address = &self.targets[index].target.address;
            return Err(SanitizedText::new(&format!(
                "{address}: this is an aggregator, not the exporter of a node; name the nodes as targets, or \
                 use --aggregator {address}"
            )));
        }
        let node = self.resolve_node(index, page, at)?;
        let tracked = &mut self.targets[index];
        let id = tracked.target.id;
        let node_time =
            page.report.node_time.filter(|node_time| (UnixMs(0)..LATEST).contains(node_time));
        if node_time.is_some() && node_time == tracked.node_time {
            return self.check_repeat(index, at); // The same sample as before.
        }
        let same_clock = node_time.is_some() == tracked.node_time.is_some();
        let is_repeat = tracked.detect_repeat(page, at);
        tracked.node_time = node_time;
        if node_time.is_some() {
            tracked.last_change = Some(at);
        }
        if !is_repeat {
            tracked.renewals.record(at);
        }
        let selected = self.select_page_metrics(node, id, page, at, same_clock)?;
        self.update_layout(index, node, page, &selected, at);
        let sampling_interval =
            if page.dialect.has_own_interval() { LONGEST_LOOK } else { Duration::ZERO };
        let (slot, gap) = (self.history_slot(at), self.freshness_window() + sampling_interval);
        let arrival = self.arrival_offset(at);
        let before = UnixMs((slot - 1) * self.period.as_millis() as i64);
        let stamp = SampleStamp {
            arrival,
            clock: node_time.unwrap_or(at),
            base_from: self.arrivals.nearest_offset(selected.epoch.max(at - gap)),
            gap_ms: gap.as_millis() as i64,
            slot,
            slot_skipped: self.arrivals.span(at - self.period * 3 / 2, before),
            is_repeat,
            may_grow: self.may_grow,
        };
        self.write_values(index, page, &selected, stamp);
        self.record_feed(node, index, at);
        if let Some(node) = self.inventory.node_mut(node) {
            node.sampled = Some(at);
            node.clock_skew_ms =
                node_time.map(|node_time| node_time.0 - at.0).or(node.clock_skew_ms);
        }
        Ok(())
    }

    /// A page that repeats an old sample is no error until the sample is too old.
    fn check_repeat(&self, index: usize, at: UnixMs) -> Result<(), SanitizedText> {
        let TrackedTarget { target, renewals, .. } = &self.targets[index];
        if renewals
            .last()
            .is_none_or(|renewed| at.duration_since(renewed) <= self.freshness_window())
        {
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
        index: usize,
        page: &ScrapedPage,
        at: UnixMs,
    ) -> Result<NodeId, SanitizedText> {
        let is_renamed = self.update_page_name(index, &page.report);
        let name = self.name_page(index, page.dialect, &page.report);
        let target = &self.targets[index].target;
        let (id, address) = (target.id, target.address.clone());
        let too_many =
            || SanitizedText::new(&format!("{address}: too many nodes; its page is rejected"));
        let previous = self.targets[index].node;
        if let Some(rival) = self.remembered_rival(index, &name, page.dialect) {
            if let Some(previous) = previous {
                self.detach_target(previous, id);
                self.targets[index].node = None;
            }
            return Err(self.reject_rival(index, &rival, &name, at));
        }
        let known = self.find_node(&name, page.dialect, id);
        let node = match known {
            Some(node) => node,
            None => self.inventory.ensure_node(&name).ok_or_else(too_many)?,
        };
        if let Some(previous) = previous.filter(|previous| *previous != node) {
            self.detach_target(previous, id);
            let tracked = &mut self.targets[index];
            (tracked.node, tracked.node_time) = (None, None);
            tracked.layout = RowLayout::default();
            // The node that a target itself renamed stays visible as stale. Where another exporter of the machine knows
            // its name better, there never was another node.
            let is_left =
                || self.inventory.node_by_id(previous).is_some_and(|node| node.sources.is_empty());
            if !is_renamed && is_left() {
                self.inventory.remove_node(previous, &mut self.columns);
                self.invalidate_rows();
            }
        }
        let Some(sources) = self.inventory.node_mut(node).map(|node| &mut node.sources) else {
            return Err(too_many());
        };
        let rival =
            sources.iter().find(|other| other.dialect == page.dialect && other.target != id);
        let rival = rival.map(|rival| rival.target).filter(|_| !page.dialect.is_model_server());
        if let Some(rival) = rival {
            let rival = self
                .target_by_id(rival)
                .map_or_else(SanitizedText::default, |t| t.target.address.clone());
            self.detach_target(node, id);
            self.targets[index].node = None;
            return Err(self.reject_rival(index, &rival, &name, at));
        }
        let is_full = sources.len() >= MAX_SOURCES;
        match sources.iter_mut().find(|source| source.target == id) {
            Some(source) if source.dialect == page.dialect => {}
            Some(source) => *source = MetricSource::new(page.dialect, id, at),
            None if is_full => {
                return Err(SanitizedText::new(&format!(
                    "{address}: {MAX_SOURCES} targets already report node {name}, the maximum; \
                     its page is rejected. Check the node names of these targets"
                )));
            }
            None => sources.push(MetricSource::new(page.dialect, id, at)),
        }
        self.targets[index].node = Some(node);
        Ok(node)
    }

    /// Detaches a target from a node: drops what it reported, so that sources of lower priority count again.
    fn detach_target(&mut self, id: NodeId, target: TargetId) {
        let Some(node) = self.inventory.node_mut(id).filter(|node| node.has_source(target)) else {
            return;
        };
        node.sources.retain(|source| source.target != target);
        node.forget_feeds(target);
        let rows = node.rows.clone();
        for (class, rows) in DeviceClass::ALL.into_iter().zip(rows) {
            for row in rows {
                self.inventory.update_identity(class, row, |entry| entry.forget_target(target));
            }
        }
        if let Some(index) = self.target_positions.get(&target) {
            self.targets[*index].layout = RowLayout::default();
        }
        self.for_each_source(id, |tracked| tracked.layout = RowLayout::default());
        self.jobs_changed = true;
    }

    /// Calls `update` for every target that reports a node.
    fn for_each_source(&mut self, id: NodeId, mut update: impl FnMut(&mut TrackedTarget)) {
        let sources = self.inventory.node_by_id(id).map(|node| node.sources.as_slice());
        for source in sources.unwrap_or_default() {
            if let Some(index) = self.target_positions.get(&source.target) {
                update(&mut self.targets[*index]);
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
        let node_removed =
            || SanitizedText::new("its node was removed while its page was ingested");
        let node = self.inventory.node_mut(node).ok_or_else(node_removed)?;
        let index = node.sources.iter().position(|source| source.target == id);
        let index = index.ok_or_else(node_removed)?;
        Ok(select_metrics(&mut node.sources, index, &page.report, at, fresh_for, same_clock))
    }

    /// Maps the page's devices to rows and updates their identity where it differs from the page before.
    fn update_layout(
        &mut self,
        index: usize,
        node: NodeId,
        page: &ScrapedPage,
        selected: &SelectedMetrics,
        at: UnixMs,
    ) {
        let report = &page.report;
        let mut layout = std::mem::take(&mut self.targets[index].layout);
        let same_devices = layout.devices == report.devices && layout.infos == report.infos;
        let is_changed = !same_devices || layout.ingested != selected.ingested;
        self.topology_changed |= is_changed
            && (is_selection_changed(&layout, selected) || is_topology_changed(&layout, report));
        if is_changed {
            self.map_devices(index, node, page, selected, &mut layout, at);
        }
        for (device, row) in layout.names.iter().zip(&layout.rows) {
            self.inventory.mark_seen(device.class, *row, at);
        }
        if is_changed {
            let source = (page.dialect, self.targets[index].target.id);
            for (device, row) in layout.names.iter().zip(&layout.rows) {
                self.inventory
                    .update_identity(device.class, *row, |entry| entry.forget_target(source.1));
            }
            for info in &report.infos {
                self.record_info(&layout, info, source);
            }
            // Info series that this page no longer has may come from other targets.
            if report.infos.len() < layout.infos.len() {
                self.for_each_source(node, |tracked| tracked.layout.infos = CowList::default());
            }
            layout.infos.clone_from(&report.infos);
            self.jobs_changed = true;
        }
        self.targets[index].layout = layout;
    }

    /// Maps the devices with ingested metrics to rows.
    fn map_devices(
        &mut self,
        index: usize,
        node: NodeId,
        page: &ScrapedPage,
        selected: &SelectedMetrics,
        layout: &mut RowLayout,
        at: UnixMs,
    ) {
        let report = &page.report;
        let name =
            self.inventory.node_by_id(node).map(|node| node.name.clone()).unwrap_or_default();
        let address = &self.targets[index].target.address;
        let names = DeviceNames { node: &name, address };
        layout.names = names.resolve_devices(&mut self.inventory, node, report);
        let mut is_used = vec![false; report.devices.len()];
        let mut measured = [false; DeviceClass::ALL.len()];
        for sample in
            report.samples.iter().filter(|sample| selected.ingested.has_metric(sample.metric))
        {
            if let Some(is_used) = is_used.get_mut(sample.device as usize) {
                *is_used = true;
                if let Some(metric) = CATALOGUE.get(usize::from(sample.metric.0)) {
                    measured[metric.class as usize] = true;
                }
            }
        }
        // The identity of a device may be on another page than its measurements.
        for info in &report.infos {
            if let Some(is_used) = is_used.get_mut(info.device as usize) {
                *is_used = true;
            }
        }
        layout.refused = RefusedDevices::default();
        let row = |(device, is_used): (&Device, &bool)| {
            if !*is_used || device.class == DeviceClass::Fleet {
                return NOT_TAKEN;
            }
            self.inventory.ensure_row(node, device, at).unwrap_or_else(|| {
                layout.refused.count_device(device.class);
                NOT_TAKEN
            })
        };
        layout.rows = layout.names.iter().zip(&is_used).map(row).collect();
        let is_fed = |class: &DeviceClass| {
            let mut devices = report.devices.iter().zip(&layout.rows);
            measured[*class as usize]
                && devices.any(|(device, row)| device.class == *class && *row != NOT_TAKEN)
        };
        layout.fed = DeviceClass::ALL.into_iter().filter(is_fed).collect();
        layout.devices.clone_from(&report.devices);
        layout.ingested.clone_from(&selected.ingested);
    }

    fn record_info(&mut self, layout: &RowLayout, info: &InfoSeries, source: (Dialect, TargetId)) {
        let (index, metric) = (info.device as usize, info.metric);
        let (Some(device), Some(row)) = (layout.names.get(index), layout.rows.get(index)) else {
            return;
        };
        let catalogue_row = CATALOGUE.get(usize::from(metric.0));
        if catalogue_row.is_none_or(|row| row.kind != MetricKind::Info || row.class != device.class)
        {
            return;
        }
        self.inventory.update_identity(device.class, *row, |entry| {
            entry.record_info(metric, source, &info.labels);
        });
    }

    fn write_values(
        &mut self,
        target_index: usize,
        page: &ScrapedPage,
        selected: &SelectedMetrics,
        mut stamp: SampleStamp,
    ) {
        let layout = &self.targets[target_index].layout;
        let base_from = stamp.base_from;
        // Samples of one metric are usually adjacent.
        for run in page.report.samples.chunk_by(|one, other| one.metric == other.metric) {
            let Some(metric) = run.first().map(|sample| sample.metric) else { continue };
            let (Some(row), Some(column)) =
                (CATALOGUE.get(usize::from(metric.0)), self.columns.get_mut(usize::from(metric.0)))
            else {
                continue;
            };
            if row.kind == MetricKind::Info || !selected.ingested.has_metric(metric) {
                continue;
            }
            let class = row.class;
            // Earlier readings of the metric may be from another target.
            let is_continued = selected.previous.has_metric(metric);
            stamp.base_from = if is_continued { base_from } else { stamp.arrival };
            column.grow_to(self.inventory.row_count(class));
            for sample in run {
                let index = sample.device as usize;
                let (Some(device), Some(row)) = (layout.devices.get(index), layout.rows.get(index))
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
    fn record_feed(&mut self, node: NodeId, index: usize, at: UnixMs) {
        let TrackedTarget { target, layout, renewals, .. } = &self.targets[index];
        let Some(node) = self.inventory.node_mut(node) else { return };
        for class in &layout.fed {
            let (class, target) = (*class, target.id);
            node.record_feed(ClassFeed { class, target, last: at, renewals: *renewals });
        }
    }
}

/// Whether devices of this class are part of the topology.
const fn is_in_topology(class: DeviceClass) -> bool {
    matches!(class, DeviceClass::Node | DeviceClass::Port | DeviceClass::Gpu | DeviceClass::Nvlink)
}

/// Whether the selection differs from before for devices that are part of the topology: devices appear or disappear.
fn is_selection_changed(previous: &RowLayout, selected: &SelectedMetrics) -> bool {
    previous.ingested != selected.ingested
        && MetricId::all_ids().filter(|metric| is_in_topology(metric.catalogue_row().class)).any(
            |metric| previous.ingested.has_metric(metric) != selected.ingested.has_metric(metric),
        )
}

/// Whether a page names other nodes, ports or GPUs than the page before, or other identities of them.
fn is_topology_changed(previous: &RowLayout, report: &Report) -> bool {
    let in_topology = |device: &&Device| is_in_topology(device.class);
    let is_identity = |info: &&InfoSeries| matches!(info.metric, port::INFO | gpu::INFO);
    let devices = previous.devices.iter().filter(in_topology);
    let infos = previous.infos.iter().filter(is_identity);
    !devices.eq(report.devices.iter().filter(in_topology))
        || !infos.eq(report.infos.iter().filter(is_identity))
}

/// Whether the result carries no information about its target.
fn is_own(batch: &Batch) -> bool {
    batch.outcome.as_ref().is_err_and(ScrapeFailure::is_own)
}
