//! The desk: hears what the sources name, keeps the roster, and starts and ends the scrapes by it.

use std::{collections::HashMap, sync::Arc};

use gaunt_schema::{Clock, Delivery, Safe, TargetId};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{AbortHandle, JoinSet},
};

use super::{
    Group, Plan,
    access::Ring,
    budget::{Account, Ledger},
    fetch::{Line, Manners, Rules},
    form::Form,
    lateness::{Beats, Lateness},
    place::{Place, Scheme},
    reach::Reach,
    roster::Roster,
    schedule::Slots,
    scrape::{Replaced, Scrape},
    source::{Common, News},
};

/// News of sources that may wait; full, a source waits and its list stands as it is.
const NEWS: usize = 64;

/// Replaced machines that may wait for their new number; full, their scrapes wait, and slots that pass are skipped.
const REPLACED: usize = 64;

/// A group that is in use: what its targets share, and what keeps its keys.
#[derive(Debug)]
struct Open {
    group: Group,
    reach: Arc<Reach>,
    keys: watch::Receiver<Ring>,
    _tasks: JoinSet<()>,
}

/// Everything that runs. It ends with its task.
pub(super) struct Desk {
    plan: Plan,
    roster: Roster<Open>,
    opened: Vec<Arc<Open>>,
    /// The sources' tasks, in the order of the roster, and the number of the first.
    tasks: JoinSet<()>,
    first_source: u64,
    scrapes: HashMap<TargetId, AbortHandle>,
    running: JoinSet<()>,
    rules: Arc<Rules>,
    lateness: (Arc<Lateness>, Beats),
    ledger: Arc<Ledger>,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    replaced: (mpsc::Sender<Replaced>, mpsc::Receiver<Replaced>),
    inbox: mpsc::Sender<Delivery>,
    clock: Clock,
}

/// The inbox is closed: nobody wants to know any more.
struct Closed;

impl Desk {
    pub(super) fn new(plan: Plan, inbox: mpsc::Sender<Delivery>, clock: Clock) -> Self {
        let options = &plan.options;
        Self {
            roster: Roster::new(options.removal),
            opened: Vec::new(),
            tasks: JoinSet::new(),
            first_source: 0,
            scrapes: HashMap::new(),
            running: JoinSet::new(),
            rules: Arc::new(Rules::new(options.timeout, options.max_body, &options.limits)),
            lateness: Lateness::start(),
            ledger: Ledger::new(options.limits),
            news: mpsc::channel(NEWS),
            replaced: mpsc::channel(REPLACED),
            plan,
            inbox,
            clock,
        }
    }

    /// Runs until nobody listens, or nobody can reload any more.
    pub(super) async fn run(mut self, mut plans: mpsc::Receiver<Plan>) {
        self.open_sources().await;
        if self.announce().await.is_err() {
            return;
        }
        loop {
            let done = tokio::select! {
                biased;
                plan = plans.recv() => match plan {
                    Some(plan) => self.reload(plan).await,
                    None => return,
                },
                Some(replaced) = self.replaced.1.recv() => self.renew(replaced).await,
                Some(news) = self.news.1.recv() => self.hear(news).await,
                Some(_) = self.running.join_next() => Ok(()),
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Opens every group anew, but those that are as before, and starts every source.
    async fn open_sources(&mut self) {
        self.tasks.abort_all();
        self.first_source += self.roster.sources().len() as u64;
        let mut before = std::mem::take(&mut self.opened);
        let (mut names, mut starts) = (Vec::new(), Vec::new());
        for group in self.plan.groups.clone() {
            let known = before.iter().position(|open| open.group.is_reached_like(&group));
            let open = match known {
                Some(at) => before.swap_remove(at),
                None => Arc::new(open(group.clone()).await),
            };
            let common = common(&group);
            for source in group.sources {
                names.push((source.name(), open.clone()));
                starts.push((source, common.clone()));
            }
            self.opened.push(open);
        }
        self.roster.set_sources(names, self.plan.options.removal);
        for (number, (source, common)) in (self.first_source..).zip(starts) {
            self.tasks.spawn(source.run(number, common, self.news.0.clone()));
        }
    }

    async fn reload(&mut self, plan: Plan) -> Result<(), Closed> {
        if self.plan.options.is_fixed_unlike(&plan.options) {
            tracing::warn!(
                "period, timeout and limits stay as they are until gaunt is started again; targets are reloaded"
            );
        }
        let options = super::Options { removal: plan.options.removal, ..self.plan.options.clone() };
        self.plan = Plan { options, ..plan };
        self.open_sources().await;
        self.settle().await
    }

    async fn hear(&mut self, news: News) -> Result<(), Closed> {
        // A source that was ended may have spoken before.
        let Some(at) = news.source.checked_sub(self.first_source) else { return Ok(()) };
        let before =
            self.roster.sources().get(at as usize).and_then(|source| source.trouble.clone());
        match news.list {
            Ok(listing) => self.roster.offer(at as usize, listing, (self.clock)()),
            Err(error) => self.roster.fail(at as usize, &error.to_string(), (self.clock)()),
        }
        if let Some(now) = self.roster.sources().get(at as usize) {
            tell(before.as_ref(), now);
        }
        self.settle().await
    }

    /// Makes what runs the same as what the roster says.
    async fn settle(&mut self) -> Result<(), Closed> {
        let changes = self.roster.merge();
        for id in &changes.gone {
            if let Some(scrape) = self.scrapes.remove(id) {
                scrape.abort();
            }
        }
        if changes.any {
            let (new, gone) = (changes.new.len(), changes.gone.len());
            tracing::info!(targets = self.roster.len(), new, gone, "targets changed");
            self.announce().await?;
        } else {
            self.tell_sources().await?;
        }
        for (id, slot, place, open) in changes.new {
            self.scrape(id, slot, place, &open);
        }
        Ok(())
    }

    async fn announce(&self) -> Result<(), Closed> {
        let targets = Delivery::Targets(self.roster.targets());
        self.inbox.send(targets).await.map_err(|_| Closed)?;
        self.tell_sources().await
    }

    async fn tell_sources(&self) -> Result<(), Closed> {
        let sources = Delivery::Sources(self.roster.sources());
        self.inbox.send(sources).await.map_err(|_| Closed)
    }

    fn scrape(&mut self, id: TargetId, slot: usize, place: Place, open: &Open) {
        let form = Form::first(open.group.open_metrics, open.group.frames);
        let (accept, compress) = (form.accept(), open.group.compress);
        let manners = Manners { accept, compress, ..Manners::default() };
        let period = self.plan.options.period;
        let address = Safe::new(&place.to_string());
        let scrape = Scrape {
            target: id,
            address,
            slots: Slots::new(slot, period),
            period,
            form,
            line: Line::new(place, open.reach.clone(), open.keys.clone(), manners),
            rules: self.rules.clone(),
            lateness: self.lateness.0.clone(),
            account: Account::new(self.ledger.clone()),
            replaced: self.replaced.0.clone(),
            inbox: self.inbox.clone(),
            clock: self.clock.clone(),
        };
        let handle = self.running.spawn(scrape.run());
        if let Some(before) = self.scrapes.insert(id, handle) {
            before.abort();
        }
    }

    /// Another machine answers at an address: it is another target, so that nothing of the old one is taken for its own.
    async fn renew(&mut self, replaced: Replaced) -> Result<(), Closed> {
        let Some(id) = self.roster.renew(replaced.target) else { return Ok(()) };
        if let Some(scrape) = self.scrapes.remove(&replaced.target) {
            self.scrapes.insert(id, scrape);
        }
        self.announce().await?;
        // The scrape may have been ended meanwhile.
        _ = replaced.back.send(id);
        Ok(())
    }
}

async fn open(group: Group) -> Open {
    let mut tasks = JoinSet::new();
    let keys = group.access.clone().open(&mut tasks).await;
    if group.access.tls.insecure {
        tracing::warn!(
            group = %group.name,
            "servers of this group are believed without proof: whoever sits between can read and change everything"
        );
    }
    if let Err(why) = &*keys.borrow() {
        tracing::error!(group = %group.name, %why, "targets of this group are not asked");
    }
    Open { reach: Arc::new(group.reach.clone()), keys, group, _tasks: tasks }
}

fn common(group: &Group) -> Common {
    let guarded = group.access.credentials.is_some() && group.usual.scheme == Scheme::Https;
    Common { usual: group.usual.clone(), may_downgrade: !guarded }
}

/// Says in the log what is new about a source.
fn tell(before: Option<&Safe>, now: &gaunt_schema::TargetSource) {
    match (&now.trouble, before) {
        (Some(trouble), before) if before != Some(trouble) => {
            tracing::error!(source = %now.name, "{trouble}");
        }
        (None, Some(_)) => {
            tracing::info!(source = %now.name, targets = now.targets, "is read again");
        }
        _ => {}
    }
}

/// Waits for the number that a replaced machine gets.
pub(super) type Back = oneshot::Sender<TargetId>;

#[cfg(test)]
mod tests {
    use gaunt_schema::UnixMs;

    use super::{
        super::{Source, source::Listing, tests::options},
        *,
    };

    /// Many more lists and replaced machines than may wait: their senders wait, and the last list stands.
    #[tokio::test]
    async fn desk_takes_all_news_however_fast_they_come() {
        let (inbox, mut deliveries) = mpsc::channel(8);
        let source = Source::List(String::new(), "here".into());
        let group = Group { sources: vec![source], ..Group::default() };
        let usual = group.usual.clone();
        let plan = Plan { options: options(), groups: vec![group] };
        let desk = Desk::new(plan, inbox, Arc::new(|| UnixMs(1)));
        let (news, replaced) = (desk.news.0.clone(), desk.replaced.0.clone());
        let (plans, reloads) = mpsc::channel(1);
        let running = tokio::spawn(desk.run(reloads));
        let (rounds, most) = (10 * NEWS, 5);
        let naming = tokio::spawn(async move {
            for nth in 0..=rounds {
                let mut places = super::super::place::Places::new(usual.clone());
                // Addresses at which nobody listens.
                let list = format!("127.0.0.[1-{}]:1", 1 + nth * (most - 1) / rounds);
                places.add_list(&list, &"here".into()).unwrap();
                let list = Ok(Listing { places: places.into_vec(), trouble: None });
                news.send(News { source: 0, list }).await.unwrap();
            }
        });
        let renewing = tokio::spawn(async move {
            for nth in 0..10 * REPLACED as u32 {
                let (back, number) = oneshot::channel();
                let target = TargetId(1_000_000 + nth);
                replaced.send(Replaced { target, back }).await.unwrap();
                assert!(number.await.is_err(), "a target that nobody named gets no number");
            }
        });
        while let Some(delivery) = deliveries.recv().await {
            if matches!(&delivery, Delivery::Targets(targets) if targets.len() == most) {
                break;
            }
        }
        // Batches of those that fail go on meanwhile.
        let taking = tokio::spawn(async move { while deliveries.recv().await.is_some() {} });
        naming.await.unwrap();
        renewing.await.unwrap();
        drop(plans);
        running.await.unwrap();
        taking.await.unwrap();
    }
}
