//! Taking what senders bring: which node a page speaks for, and which of its devices it may speak for.

use std::collections::HashMap;

use gaunt_schema::{
    Batch, Class, Device, Dialect, Info, Page, Report, Safe, Target, TargetId, UnixMs,
    catalogue::{CATALOGUE, gpu, port},
    unit::Kind,
};

use super::{
    Cluster, MAX_TARGETS,
    column::Stamp,
    node::{Feed, NodeId, name_of},
    target::{Layout, NOT_TAKEN, Scraped},
};

/// The most labels that are kept of one info series.
const MAX_INFO_LABELS: usize = 32;

/// Node clocks after this instant, in the year 5138, are not believed; sums with them could overflow.
const LATEST: UnixMs = UnixMs(100_000_000_000_000);

impl Cluster {
    /// Replaces the list of targets; what is named again keeps its past.
    pub(super) fn announce(&mut self, mut targets: Vec<Target>) {
        targets.truncate(MAX_TARGETS);
        let mut known: HashMap<TargetId, Scraped> =
            self.targets.drain(..).map(|scraped| (scraped.target.id, scraped)).collect();
        self.places.clear();
        let mut left = Vec::new();
        for target in targets {
            let id = target.id;
            if self.places.contains_key(&id) {
                continue;
            }
            self.places.insert(id, self.targets.len());
            let (kept, renamed) = match known.remove(&id) {
                Some(old) if old.target == target => (Some(old), None),
                old => (None, old),
            };
            left.extend(renamed);
            self.targets.push(kept.unwrap_or_else(|| Scraped::new(target)));
        }
        for scraped in left.into_iter().chain(known.into_values()) {
            let Some(node) = scraped.node else { continue };
            self.leave(node, scraped.target.id);
            if self.inventory.node(node).is_some_and(|node| node.speakers.is_empty()) {
                self.inventory.remove_node(node, &mut self.columns);
                self.rows_freed();
            }
        }
    }

    /// Takes the result of reading one target once.
    pub(super) fn take(&mut self, batch: &Batch) {
        let Some(place) = self.places.get(&batch.target).copied() else { return };
        let scraped = &mut self.targets[place];
        if scraped.last_attempt.is_some_and(|last| batch.at < last) {
            return; // Overtaken by a later attempt.
        }
        scraped.attempted(batch, self.period);
        if let Ok(page) = &batch.outcome {
            self.targets[place].flag = self.take_page(place, batch.at, page).err();
        }
    }

    /// Writes a page into the columns, or says why not.
    fn take_page(&mut self, place: usize, at: UnixMs, page: &Page) -> Result<(), Safe> {
        if page.dialect == Dialect::Unknown {
            let address = &self.targets[place].target.address;
            return Err(Safe::new(&format!(
                "{address}: its page has no metric that gaunt knows; `gaunt metrics` lists them"
            )));
        }
        let node = self.claim(place, page)?;
        let scraped = &mut self.targets[place];
        let id = scraped.target.id;
        let time = page.report.node_time.filter(|time| (UnixMs(0)..LATEST).contains(time));
        if time.is_some() && time == scraped.node_time {
            return self.repeated(place, at); // The sample that was taken before, once more.
        }
        let same_clock = time.is_some() == scraped.node_time.is_some();
        (scraped.node_time, scraped.moved) = (time, Some(at));
        let taken = self.feeds(node, id, page, at, same_clock);
        self.settle(place, node, page, taken, at);
        let stamp = Stamp {
            at,
            clock: time.unwrap_or(at),
            epoch: at,
            gap: self.fresh_for(),
            steady: self.period * 3 / 2,
            slot: self.slot(at),
        };
        self.write(place, node, page, stamp);
        if let Some(node) = self.inventory.node_mut(node) {
            node.sampled = Some(at);
            node.clock_skew_ms = time.map(|time| time.0 - at.0).or(node.clock_skew_ms);
        }
        Ok(())
    }

    /// A page that repeats an old sample is nothing to speak of, until the sample is too old.
    fn repeated(&self, place: usize, at: UnixMs) -> Result<(), Safe> {
        let Scraped { target, moved, .. } = &self.targets[place];
        if moved.is_none_or(|moved| at.since(moved) <= self.fresh_for()) {
            return Ok(());
        }
        Err(Safe::new(&format!(
            "{}: its page comes, but gaunt_node_time_seconds stands still: its sampler hangs, or samples more seldom \
             than it is read",
            target.address
        )))
    }

    /// The node that a target speaks for, which it may do if no other target of its dialect does.
    fn claim(&mut self, place: usize, page: &Page) -> Result<NodeId, Safe> {
        let target = &self.targets[place].target;
        let (id, name) = (target.id, name_of(target, &page.report));
        let address = target.address.clone();
        let too_many =
            || Safe::new(&format!("{address}: there are too many nodes; its data is not taken"));
        let node = self.inventory.find_node(&name).ok_or_else(too_many)?;
        let before = self.targets[place].node;
        if let Some(before) = before.filter(|before| *before != node) {
            self.leave(before, id);
            let scraped = &mut self.targets[place];
            (scraped.node, scraped.node_time) = (None, None);
            scraped.layout = Layout::default();
        }
        let Some(speakers) = self.inventory.node_mut(node).map(|node| &mut node.speakers) else {
            return Err(too_many());
        };
        let rival =
            speakers.iter().find(|(dialect, other)| *dialect == page.dialect && *other != id);
        if let Some((_, rival)) = rival.copied() {
            let rival = self.target(rival).map_or_else(Safe::default, |t| t.target.address.clone());
            self.leave(node, id);
            self.targets[place].node = None;
            let own = &self.targets[place].target.address;
            return Err(Safe::new(&format!(
                "{rival} and {own} both say that they are {name}; only the first is taken: remove one, or name them \
                 apart with NODE=ADDRESS"
            )));
        }
        speakers.retain(|(_, other)| *other != id);
        speakers.push((page.dialect, id));
        self.targets[place].node = Some(node);
        Ok(node)
    }

    /// A target speaks for a node no more.
    fn leave(&mut self, node: NodeId, id: TargetId) {
        let Some(node) = self.inventory.node_mut(node) else { return };
        node.speakers.retain(|(_, other)| *other != id);
        for feed in &mut node.feeds {
            if feed.is_some_and(|feed| feed.target == id) {
                *feed = None;
            }
        }
    }

    /// Which classes are taken from this target: those that it feeds already, those that nobody feeds now, and those
    /// that it can feed better than the one that does.
    fn feeds(
        &mut self,
        node: NodeId,
        id: TargetId,
        page: &Page,
        at: UnixMs,
        same_clock: bool,
    ) -> [bool; Class::ALL.len()] {
        let mut taken = [false; Class::ALL.len()];
        let fresh_for = self.fresh_for();
        let Some(node) = self.inventory.node_mut(node) else { return taken };
        for sample in &page.report.samples {
            if let Some(device) = page.report.devices.get(sample.device as usize) {
                taken[device.class as usize] = true;
            }
        }
        taken[Class::Fleet as usize] = false;
        for (taken, feed) in taken.iter_mut().zip(&mut node.feeds).filter(|(taken, _)| **taken) {
            let own = feed.filter(|feed| feed.target == id);
            let epoch = own.filter(|_| same_clock).map_or(at, |feed| feed.epoch);
            let better =
                |feed: Feed| page.dialect < feed.dialect || at.since(feed.last) > fresh_for;
            *taken = own.is_some() || feed.is_none_or(better);
            if *taken {
                *feed = Some(Feed { target: id, dialect: page.dialect, last: at, epoch });
            }
        }
        taken
    }

    /// Finds the rows of the page's devices, and takes in who they are, where it differs from the page before.
    fn settle(
        &mut self,
        place: usize,
        node: NodeId,
        page: &Page,
        taken: [bool; Class::ALL.len()],
        at: UnixMs,
    ) {
        let report = &page.report;
        let mut layout = std::mem::take(&mut self.targets[place].layout);
        let moved = layout.taken != taken || layout.devices != report.devices;
        self.wiring_changed |= layout.taken != taken || rewires(&layout, report);
        if moved {
            let row = |device: &gaunt_schema::Device| {
                let row = taken[device.class as usize]
                    .then(|| self.inventory.find_row(node, device, at))
                    .flatten();
                row.unwrap_or(NOT_TAKEN)
            };
            layout.rows = report.devices.iter().map(row).collect();
            layout.devices.clone_from(&report.devices);
            layout.taken = taken;
        }
        let renamed = moved || layout.infos != report.infos;
        for (device, row) in layout.devices.iter().zip(&layout.rows) {
            if let Some(entry) = self.inventory.entry_mut(device.class, *row) {
                entry.seen = at;
                if renamed {
                    entry.infos.clear();
                }
            }
        }
        if renamed {
            for info in &report.infos {
                self.identify(&layout, info);
            }
            layout.infos.clone_from(&report.infos);
            self.jobs_changed = true;
        }
        self.targets[place].layout = layout;
    }

    fn identify(&mut self, layout: &Layout, info: &Info) {
        let (at, metric) = (info.device as usize, info.metric);
        let (Some(device), Some(row)) = (layout.devices.get(at), layout.rows.get(at)) else {
            return;
        };
        let known = CATALOGUE.get(usize::from(metric.0));
        if known.is_none_or(|known| known.kind != Kind::Info || known.class != device.class) {
            return;
        }
        if let Some(entry) = self.inventory.entry_mut(device.class, *row) {
            let labels = info.labels.iter().take(MAX_INFO_LABELS).cloned();
            entry.infos.entry(metric).or_default().extend(labels);
        }
    }

    fn write(&mut self, place: usize, node: NodeId, page: &Page, mut stamp: Stamp) {
        let Some(node) = self.inventory.node(node) else { return };
        let epochs = node.feeds.map(|feed| feed.map_or(stamp.at, |feed| feed.epoch));
        let lengths = Class::ALL.map(|class| self.inventory.rows(class));
        let layout = &self.targets[place].layout;
        for sample in &page.report.samples {
            let at = sample.device as usize;
            let (Some(device), Some(row)) = (layout.devices.get(at), layout.rows.get(at)) else {
                continue;
            };
            let Some(metric) = CATALOGUE.get(usize::from(sample.metric.0)) else { continue };
            if *row == NOT_TAKEN || metric.class != device.class || metric.kind == Kind::Info {
                continue;
            }
            let class = device.class as usize;
            stamp.epoch = epochs[class];
            let column = &mut self.columns[usize::from(sample.metric.0)];
            column.write(*row, lengths[class], sample.reading, &stamp);
        }
    }
}

/// Whether a page names other nodes, ports or GPUs than the page before, or says other things of who they are.
fn rewires(before: &Layout, report: &Report) -> bool {
    let placed = |device: &&Device| matches!(device.class, Class::Node | Class::Port | Class::Gpu);
    let says = |info: &&Info| matches!(info.metric, port::INFO | gpu::INFO);
    let devices = before.devices.iter().filter(placed);
    let infos = before.infos.iter().filter(says);
    !devices.eq(report.devices.iter().filter(placed)) || !infos.eq(report.infos.iter().filter(says))
}
