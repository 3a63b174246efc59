//! The scrape manager: receives target lists from the sources, updates the target set, and starts and stops scrape
//! tasks.

use std::{collections::HashMap, sync::Arc};

use gaunt_schema::{ClockFn, Delivery, SanitizedText, TargetId};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
};

use super::{
    RasRequestFn, ScrapePlan, TargetGroup,
    address_policy::AddressPolicy,
    content_negotiation::RequestedFormat,
    discovery_source::{DiscoveryUpdate, GroupDefaults},
    endpoint::{Endpoint, UrlScheme},
    fetch::{FetchContext, RequestOptions, TargetClient},
    log_thinning::LogThinning,
    network::Network,
    quotas::{FleetQuotaUsage, TargetQuotaUsage},
    scrape_slots::ScrapeSlots,
    scrape_task::{MachineReplaced, ScrapeTask},
    server_access::CredentialState,
    target_set::TargetSet,
    timer_lateness::{BEAT, LatenessTaskGuard, SIMULATED_BEAT, TimerLateness},
};

/// Capacity of the update channel; if it is full, a source waits and its previous list stays in effect.
const NEWS: usize = 64;

/// Capacity of the channel for replaced machines, which wait for their new id; if it is full, their scrapes wait and
/// skip slots.
const REPLACED: usize = 64;

/// A group in use: what its targets share, and the task that reloads its credentials.
#[derive(Debug)]
struct OpenGroup {
    group: TargetGroup,
    address_policy: Arc<AddressPolicy>,
    credentials: watch::Receiver<CredentialState>,
    _tasks: JoinSet<()>,
}

/// All running tasks. They end with the manager's task.
pub(super) struct ScrapeManager {
    plan: ScrapePlan,
    targets: TargetSet<OpenGroup>,
    opened: Vec<Arc<OpenGroup>>,
    /// The sources' tasks, in the order of the target set, and the number of the first.
    tasks: JoinSet<()>,
    first_source: u64,
    scrapes: HashMap<TargetId, AbortHandle>,
    scrape_tasks: JoinSet<()>,
    fetch_context: Arc<FetchContext>,
    lateness: (Arc<TimerLateness>, LatenessTaskGuard),
    fleet_usage: Arc<FleetQuotaUsage>,
    updates: (mpsc::Sender<DiscoveryUpdate>, mpsc::Receiver<DiscoveryUpdate>),
    replaced: (mpsc::Sender<MachineReplaced>, mpsc::Receiver<MachineReplaced>),
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
    wants_ras_status: RasRequestFn,
    network: Option<Arc<dyn Network>>,
}

/// The inbox is closed: receiver dropped.
struct ManagerInboxClosed;

impl ScrapeManager {
    pub(super) fn new(
        plan: ScrapePlan,
        inbox: mpsc::Sender<Delivery>,
        clock: ClockFn,
        wants_ras_status: RasRequestFn,
        network: Option<Arc<dyn Network>>,
    ) -> Self {
        let options = &plan.options;
        let beat = if network.is_some() { SIMULATED_BEAT } else { BEAT };
        Self {
            targets: TargetSet::new(options.removal),
            opened: Vec::new(),
            tasks: JoinSet::new(),
            first_source: 0,
            scrapes: HashMap::new(),
            scrape_tasks: JoinSet::new(),
            fetch_context: Arc::new(
                FetchContext::new(options.timeout, options.max_body, &options.limits)
                    .with_network(network.clone()),
            ),
            lateness: TimerLateness::spawn_timer(beat),
            fleet_usage: FleetQuotaUsage::new(options.limits),
            updates: mpsc::channel(NEWS),
            replaced: mpsc::channel(REPLACED),
            plan,
            inbox,
            clock,
            wants_ras_status,
            network,
        }
    }

    /// Runs until the receiver of batches or the sender of plans is dropped.
    pub(super) async fn run(mut self, mut plans: mpsc::Receiver<ScrapePlan>) {
        self.open_sources().await;
        if self.announce_targets().await.is_err() {
            return;
        }
        loop {
            let result = tokio::select! {
                biased;
                plan = plans.recv() => match plan {
                    Some(plan) => self.reload_plan(plan).await,
                    None => return,
                },
                Some(replaced) = self.replaced.1.recv() => self.assign_new_id(replaced).await,
                Some(update) = self.updates.1.recv() => self.handle_update(update).await,
                Some(_) = self.scrape_tasks.join_next() => Ok(()),
            };
            if result.is_err() {
                return;
            }
        }
    }

    /// Opens every group again, except unchanged ones, and starts every source.
    async fn open_sources(&mut self) {
        self.tasks.abort_all();
        self.first_source += self.targets.source_statuses().len() as u64;
        let mut previous = std::mem::take(&mut self.opened);
        let (mut names, mut starts) = (Vec::new(), Vec::new());
        for group in self.plan.groups.clone() {
            let reusable = previous.iter().position(|open| open.group.has_same_transport(&group));
            let open = match reusable {
                Some(index) => previous.swap_remove(index),
                None => Arc::new(open_group(group.clone()).await),
            };
            let common = group_defaults(&group);
            for source in group.sources {
                names.push((source.display_name(), open.clone()));
                starts.push((source, common.clone()));
            }
            self.opened.push(open);
        }
        self.targets.set_sources(names, self.plan.options.removal);
        for (number, (source, common)) in (self.first_source..).zip(starts) {
            let (updates, network) = (self.updates.0.clone(), self.network.clone());
            self.tasks.spawn(source.run(number, common, updates, network));
        }
    }

    async fn reload_plan(&mut self, plan: ScrapePlan) -> Result<(), ManagerInboxClosed> {
        if self.plan.options.is_restart_needed(&plan.options) {
            tracing::warn!("new period, timeout and limits need a restart; targets are reloaded");
        }
        let options =
            super::ScrapeOptions { removal: plan.options.removal, ..self.plan.options.clone() };
        self.plan = ScrapePlan { options, ..plan };
        self.open_sources().await;
        self.reconcile_scrapes().await
    }

    async fn handle_update(&mut self, update: DiscoveryUpdate) -> Result<(), ManagerInboxClosed> {
        // A source that has ended may have left an update.
        let Some(index) = update.source.checked_sub(self.first_source) else { return Ok(()) };
        let before = self
            .targets
            .source_statuses()
            .get(index as usize)
            .and_then(|source| source.trouble.clone());
        match update.list {
            Ok(targets) => self.targets.offer_targets(index as usize, targets, (self.clock)()),
            Err(error) => {
                self.targets.record_failure(index as usize, &error.to_string(), (self.clock)());
            }
        }
        if let Some(now) = self.targets.source_statuses().get(index as usize) {
            log_source_change(before.as_ref(), now);
        }
        self.reconcile_scrapes().await
    }

    /// Starts and stops scrape tasks so that they match the target set.
    async fn reconcile_scrapes(&mut self) -> Result<(), ManagerInboxClosed> {
        let changes = self.targets.merge();
        for id in &changes.gone {
            if let Some(scrape) = self.scrapes.remove(id) {
                scrape.abort();
            }
        }
        if changes.any {
            let (new, gone) = (changes.new.len(), changes.gone.len());
            tracing::info!(targets = self.targets.len(), new, gone, "targets changed");
            self.announce_targets().await?;
        } else {
            self.announce_sources().await?;
        }
        for (id, slot, endpoint, open) in changes.new {
            self.spawn_scrape(id, slot, endpoint, &open);
        }
        Ok(())
    }

    async fn announce_targets(&self) -> Result<(), ManagerInboxClosed> {
        let targets = Delivery::Targets(self.targets.announced_targets());
        self.inbox.send(targets).await.map_err(|_| ManagerInboxClosed)?;
        self.announce_sources().await
    }

    async fn announce_sources(&self) -> Result<(), ManagerInboxClosed> {
        let sources = Delivery::Sources(self.targets.source_statuses());
        self.inbox.send(sources).await.map_err(|_| ManagerInboxClosed)
    }

    fn spawn_scrape(&mut self, id: TargetId, slot: usize, endpoint: Endpoint, open: &OpenGroup) {
        let format = RequestedFormat::initial_format(open.group.open_metrics, open.group.frames);
        let (accept, compress) = (format.accept_header(), open.group.compress);
        let options = RequestOptions { accept, compress, ..RequestOptions::default() };
        let period = self.plan.options.period;
        let address = SanitizedText::new(&endpoint.to_string());
        let scrape = ScrapeTask {
            target: id,
            address,
            slots: ScrapeSlots::new(slot, period),
            period,
            format,
            client: TargetClient::new(
                endpoint,
                open.address_policy.clone(),
                open.credentials.clone(),
                options,
            ),
            fetch_context: self.fetch_context.clone(),
            lateness: self.lateness.0.clone(),
            quota_usage: TargetQuotaUsage::new(self.fleet_usage.clone()),
            replaced: self.replaced.0.clone(),
            log_thinning: LogThinning::default(),
            inbox: self.inbox.clone(),
            clock: self.clock.clone(),
            wants_ras_status: self.wants_ras_status.clone(),
        };
        let handle = self.scrape_tasks.spawn(scrape.run());
        if let Some(previous) = self.scrapes.insert(id, handle) {
            previous.abort();
        }
    }

    /// Another machine answers at an address: it becomes another target, so that it does not inherit values of the old
    /// one.
    async fn assign_new_id(&mut self, replaced: MachineReplaced) -> Result<(), ManagerInboxClosed> {
        let Some(id) = self.targets.assign_new_id(replaced.target) else { return Ok(()) };
        if let Some(scrape) = self.scrapes.remove(&replaced.target) {
            self.scrapes.insert(id, scrape);
        }
        self.announce_targets().await?;
        // The scrape task may have ended meanwhile.
        _ = replaced.reply.send(id);
        Ok(())
    }
}

async fn open_group(group: TargetGroup) -> OpenGroup {
    let mut tasks = JoinSet::new();
    let credentials = group.access.clone().watch_credentials(&mut tasks).await;
    if group.access.tls.insecure {
        tracing::warn!(
            group = %group.name,
            "certificates of this group are not verified (insecure): a man in the middle can read \
             and change everything"
        );
    }
    if let Err(why) = &*credentials.borrow() {
        tracing::error!(group = %group.name, %why, "targets of this group are not scraped");
    }
    OpenGroup {
        address_policy: Arc::new(group.address_policy.clone()),
        credentials,
        group,
        _tasks: tasks,
    }
}

/// What the endpoints of a group have in common.
pub(super) fn group_defaults(group: &TargetGroup) -> GroupDefaults {
    let needs_tls = group.access.credentials.is_some() && group.defaults.scheme == UrlScheme::Https;
    GroupDefaults { defaults: group.defaults.clone(), may_downgrade: !needs_tls }
}

/// Logs what changed about a source.
fn log_source_change(previous: Option<&SanitizedText>, status: &gaunt_schema::TargetSource) {
    match (&status.trouble, previous) {
        (Some(trouble), previous) if previous != Some(trouble) => {
            tracing::error!(source = %status.name, "{trouble}");
        }
        (None, Some(_)) => {
            tracing::info!(
                source = %status.name, targets = status.targets, "source is readable again"
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;
    use tokio::sync::oneshot;

    use super::{
        super::{DiscoverySource, discovery_source::DiscoveredTargets, tests::test_options},
        *,
    };

    /// More lists and replaced machines than the channels hold: their senders wait, and the last list takes effect.
    #[tokio::test]
    async fn manager_handles_all_updates_however_fast_they_come() {
        let (inbox, mut deliveries) = mpsc::channel(8);
        let source = DiscoverySource::List(String::new(), "here".into());
        let group = TargetGroup { sources: vec![source], ..TargetGroup::default() };
        let defaults = group.defaults.clone();
        let plan = ScrapePlan { options: test_options(), groups: vec![group] };
        let manager =
            ScrapeManager::new(plan, inbox, Arc::new(|| UnixMs(1)), Arc::new(|_| false), None);
        let (updates, replaced) = (manager.updates.0.clone(), manager.replaced.0.clone());
        let (plans, reloads) = mpsc::channel(1);
        let running = tokio::spawn(manager.run(reloads));
        let (rounds, max_targets) = (10 * NEWS, 5);
        let list_sender = tokio::spawn(async move {
            for index in 0..=rounds {
                let mut endpoints = super::super::endpoint::EndpointList::new(defaults.clone());
                // Addresses without a listener.
                let list = format!("127.0.0.[1-{}]:1", 1 + index * (max_targets - 1) / rounds);
                endpoints.add_list(&list, &"here".into()).unwrap();
                let list = Ok(DiscoveredTargets { endpoints: endpoints.into_vec(), trouble: None });
                updates.send(DiscoveryUpdate { source: 0, list }).await.unwrap();
            }
        });
        let id_requester = tokio::spawn(async move {
            for index in 0..10 * REPLACED as u32 {
                let (reply, new_id) = oneshot::channel();
                let target = TargetId(1_000_000 + index);
                replaced.send(MachineReplaced { target, reply }).await.unwrap();
                assert!(new_id.await.is_err(), "a target that nobody named gets no number");
            }
        });
        while let Some(delivery) = deliveries.recv().await {
            if matches!(&delivery, Delivery::Targets(targets) if targets.len() == max_targets) {
                break;
            }
        }
        // Batches of failing targets continue meanwhile.
        let receiver = tokio::spawn(async move { while deliveries.recv().await.is_some() {} });
        list_sender.await.unwrap();
        id_requester.await.unwrap();
        drop(plans);
        running.await.unwrap();
        receiver.await.unwrap();
    }
}
