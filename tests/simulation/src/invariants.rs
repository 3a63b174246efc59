//! What must hold at every step of every run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use gaunt_api::{Answer, AnswerCells, FieldKey, Filter, Question, Refusal, Subject};
use gaunt_schema::{FindingKind, LifeState, Severity, UnixMs};

use crate::{
    simulated_aggregator::SimulatedAggregator,
    simulated_fleet::{NODES, SimulatedNode},
    simulated_network::SimulatedNetwork,
    simulated_sources::is_hostile_host,
};

/// The most connections of a pair for each target: one of each, and those that the other side has not seen end.
const MAX_CONNECTIONS: usize = 8;

/// The most files of a state folder: the parts, their unfinished and damaged ones, and the journal.
const MAX_FILES: usize = 40;

/// Seconds between two rounds of all questions, and the questions, as in the API.
const ASK_EVERY: i64 = 20;
pub(crate) const QUESTIONS: [&str; 16] = [
    "nodes",
    "closed",
    "gpu_time",
    "targets",
    "probe",
    "usage?last=10m",
    "alerts",
    "coverage",
    "fabric",
    "table/gpus",
    "table/nodes",
    "table/jobs",
    "table/findings",
    "table/closed",
    "table/targets",
    "history?metric=power",
];

/// Questions about what may not be there at every time.
const NAMED_QUESTIONS: [&str; 18] = [
    "nodes/gpu01",
    "jobs/7000",
    "gpus?filter=power>1 W&sort=power&limit=3",
    "ports?columns=node,rail,leaf",
    "table/processes",
    "nodes?filter=gpus>0",
    "fabric?filter=node=gpu01",
    "history?metric=gaunt_port_transmit_bytes_total&subject=ports&together=sum",
    "findings?filter=severity>=warning",
    "overview?at=-1m",
    "findings?at=-1m",
    "gpus?columns=node,gpu,state,lost,finding&at=-30s",
    "ports?at=-30s",
    "history?metric=lost",
    "history?metric=lost&span=1m",
    "history?metric=power&together=max&span=2m",
    "history?metric=load&subject=nodes",
    "history?metric=state",
];

/// How far a rate may be from the true one: a page is written a moment before its attempt ends.
const RATE_TOLERANCE: f64 = 0.02;

/// An acknowledgement that a user was told is saved.
#[derive(Clone, Debug)]
struct ToldAcknowledgement {
    severity: Severity,
    opened: UnixMs,
}

/// What users were told, and what was seen before.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    told: BTreeMap<String, ToldAcknowledgement>,
    last_attempts: u64,
}

impl Invariants {
    /// A user was told that the finding is acknowledged.
    pub(crate) fn note_acknowledged(&mut self, aggregator: &SimulatedAggregator, id: &str) {
        let list = aggregator.findings();
        if let Some(finding) = list.findings.iter().find(|finding| finding.id == id) {
            let told =
                ToldAcknowledgement { severity: finding.severity, opened: finding.life.opened };
            self.told.insert(id.to_owned(), told);
        }
    }

    /// An action on the finding was tried: what holds of it now is not known, or it is withdrawn.
    pub(crate) fn forget(&mut self, id: &str) {
        self.told.remove(id);
    }

    /// The saved state was lost: nothing holds of what users were told before.
    pub(crate) fn forget_all(&mut self) {
        self.told.clear();
    }

    /// A new process begins to count.
    pub(crate) fn note_start(&mut self) {
        self.last_attempts = 0;
    }

    /// The attempts that the process counted at the last check.
    pub(crate) fn last_attempts(&self) -> u64 {
        self.last_attempts
    }

    /// Checks what a new process restored: everything that users were told is there, before anything else happens.
    pub(crate) fn check_restored(&self, aggregator: &SimulatedAggregator) -> Vec<String> {
        let list = aggregator.findings();
        let is_kept = |id: &String| {
            list.findings.iter().any(|finding| finding.id == *id && finding.acknowledged.is_some())
        };
        let forgotten = self.told.keys().filter(|id| !is_kept(id));
        forgotten.map(|id| format!("the acknowledgement of {id} is lost by a restart")).collect()
    }

    /// Checks all that must hold now; returns what does not.
    pub(crate) fn check(
        &mut self,
        aggregator: &SimulatedAggregator,
        network: &SimulatedNetwork,
        files: usize,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        self.check_findings(aggregator, &mut broken);
        self.check_counts(aggregator, network, &mut broken);
        check_rates(aggregator, network, &mut broken);
        let overview = aggregator.overview();
        let lost = &overview.lost;
        let parts = lost.findings_gpus + lost.idle_gpus + lost.unexplained_gpus;
        if (lost.gpus - parts).abs() > 1e-6 {
            broken.push(format!("loss does not add up: {} is not {parts}", lost.gpus));
        }
        if aggregator.now().0 / 1_000 % ASK_EVERY == 0 {
            check_answers(aggregator, &mut broken);
        }
        if overview.at != aggregator.now() {
            broken.push(format!(
                "the overview is of {:?}, not of {:?}",
                overview.at,
                aggregator.now()
            ));
        }
        if network.counts().open > MAX_CONNECTIONS * network.node_count() {
            broken.push(format!("{} connections are open", network.counts().open));
        }
        if files > MAX_FILES {
            broken.push(format!("{files} files in the state folder"));
        }
        broken
    }

    fn check_findings(&mut self, aggregator: &SimulatedAggregator, broken: &mut Vec<String>) {
        let list = aggregator.findings();
        let (mut ids, mut faults) = (BTreeSet::new(), BTreeSet::new());
        for finding in &list.findings {
            if !ids.insert(finding.id.clone()) {
                broken.push(format!("the id {} is listed twice", finding.id));
            }
            if finding.kind == FindingKind::JudgementFailed {
                broken.push(finding.summary.clone());
            }
            if !faults.insert((finding.kind, finding.entity.clone())) {
                broken.push(format!("{} of {} is two findings", finding.kind, finding.entity));
            }
        }
        self.told.retain(|id, told| {
            let Some(finding) = list.findings.iter().find(|finding| finding.id == *id) else {
                return false;
            };
            let holds = finding.severity <= told.severity && finding.life.opened == told.opened;
            if holds && finding.acknowledged.is_none() {
                broken.push(format!("the acknowledgement of {id} is lost"));
            }
            holds && finding.acknowledged.is_some()
        });
    }

    fn check_counts(
        &mut self,
        aggregator: &SimulatedAggregator,
        network: &SimulatedNetwork,
        broken: &mut Vec<String>,
    ) {
        let Answer::Targets(list) = aggregator.ask(&Question::Targets) else { return };
        let attempts: u64 = list.totals.scrapes.values().sum();
        let dropped: u64 = list.left_out.dropped_batches.values().sum();
        let counted = attempts.saturating_sub(aggregator.attempts_before) + dropped;
        if counted != aggregator.batches {
            let batches = aggregator.batches;
            broken.push(format!("{counted} attempts are counted of {batches}"));
        }
        if attempts < self.last_attempts {
            broken.push(format!("attempts fall from {} to {attempts}", self.last_attempts));
        }
        self.last_attempts = attempts;
        let pages: u64 = list.totals.scrapes.get("ok").copied().unwrap_or_default();
        if pages > network.counts().requests + aggregator.attempts_before {
            broken.push(format!("{pages} pages of {} requests", network.counts().requests));
        }
    }
}

/// Checks that every screen's question has an answer, whatever happened, and every listed finding its explanation.
fn check_answers(aggregator: &SimulatedAggregator, broken: &mut Vec<String>) {
    let explained = aggregator.findings();
    let explained = explained.findings.iter().map(|it| Question::Finding(it.id.clone()));
    let asked = QUESTIONS.iter().map(|line| Question::parse_line(line, &[]));
    for question in asked.chain(explained.map(Ok)) {
        match question {
            Ok(question) => {
                if let Answer::Refused(why) = ask_as_client(aggregator, &question, broken) {
                    broken.push(format!("{question:?} is refused: {why:?}"));
                }
            }
            Err(why) => broken.push(format!("a question is no question: {why:?}")),
        }
    }
    for (line, question) in named_questions() {
        match question {
            // What is not there is refused.
            Ok(question) => drop(ask_as_client(aggregator, &question, broken)),
            Err(why) => broken.push(format!("{line} is no question: {why}")),
        }
    }
}

/// The questions about what may not be there, and those for all columns, as the API parses them.
pub(crate) fn named_questions() -> impl Iterator<Item = (String, Result<Question, String>)> {
    let named = NAMED_QUESTIONS.iter().map(|line| (*line).to_owned());
    named.chain(Subject::ALL.into_iter().map(ask_all_columns)).map(|line| {
        let (path, parameters) = line.split_once('?').unwrap_or((&line, ""));
        let parameters = parameters.split('&').filter_map(|parameter| parameter.split_once('='));
        let parameters: Vec<(String, String)> =
            parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let question = Question::parse_path(path, &parameters);
        let question = question.map_err(|why| format!("{why:?}"));
        (line, question)
    })
}

/// The question for a table with all columns that are no metric.
fn ask_all_columns(table: Subject) -> String {
    let fields = table.all_fields().iter();
    let own = fields.filter(|field| matches!(field.key, FieldKey::Builtin(_)));
    let names: Vec<&str> = own.map(|field| field.name.as_str()).collect();
    format!("table/{}?columns={}", table.as_str(), names.join(","))
}

/// Asks, and checks that a client decodes the answer from its JSON.
fn ask_as_client(
    aggregator: &SimulatedAggregator,
    question: &Question,
    broken: &mut Vec<String>,
) -> Answer {
    let answer = aggregator.ask(question);
    if let Answer::Refused(Refusal::Failed { error }) = &answer {
        broken.push(format!("{question:?} fails: {error}"));
    }
    if !matches!(answer, Answer::Refused(_)) {
        let json = serde_json::to_value(&answer).unwrap_or_default();
        if let Err(error) = Answer::from_json(question, &json) {
            broken.push(format!("the answer to {question:?} cannot be decoded: {error}"));
        }
    }
    answer
}

/// Seconds after a reboot in which a rate may cover the time that the node was off, and so is lower.
const BOOTED: Duration = Duration::from_secs(10);

/// Checks the rate of every port against the slope of its counter.
fn check_rates(
    aggregator: &SimulatedAggregator,
    network: &SimulatedNetwork,
    broken: &mut Vec<String>,
) {
    static QUESTION: LazyLock<Result<Question, String>> = LazyLock::new(|| {
        let columns = "columns node,gaunt_port_transmit_bytes_total";
        let filter = Filter::parse(Subject::Ports, columns);
        filter.map(Question::Table).map_err(|error| error.to_string())
    });
    let question = match &*QUESTION {
        Ok(question) => question,
        Err(error) => return broken.push(format!("the filter is refused: {error}")),
    };
    let Answer::Table(table) = aggregator.ask(question) else {
        return broken.push("no table of ports".to_owned());
    };
    let [nodes, rates] = &table.columns[..] else {
        return broken.push(format!("{} columns", table.columns.len()));
    };
    let AnswerCells::Numbers { values, .. } = &rates.cells else {
        return broken.push("rates are no numbers".to_owned());
    };
    let names = match &nodes.cells {
        AnswerCells::Texts { words, codes } => codes
            .iter()
            .map(|row| row.and_then(|row| words.get(row as usize)).map(ToString::to_string))
            .collect::<Vec<_>>(),
        AnswerCells::Numbers { .. } => return broken.push("names are no texts".to_owned()),
    };
    for (name, rate) in names.iter().zip(values) {
        let (Some(name), Some(rate)) = (name, rate) else { continue };
        let node = (0..network.node_count()).find(|node| SimulatedNode::name_of(*node) == *name);
        let Some(slope) = node.map(SimulatedNode::slope_of) else {
            broken.push(format!("a node {name:?} that does not exist"));
            continue;
        };
        let is_lower =
            rate < &slope && node.is_some_and(|node| network.has_booted_within(node, BOOTED));
        if (rate / slope - 1.0).abs() > RATE_TOLERANCE && !is_lower {
            broken.push(format!("{name} sends {rate:.0} B/s, not {slope:.0}"));
        }
    }
}

/// What must hold once all faults are over for a while; `is_long` if nothing that came and went may be open any more.
pub(crate) fn check_recovered(aggregator: &SimulatedAggregator, is_long: bool) -> Vec<String> {
    let mut broken = Vec::new();
    for finding in &aggregator.findings().findings {
        // One that came and went often stays open for three minutes.
        let is_fault =
            finding.severity >= Severity::Warning || finding.kind == FindingKind::TargetDown;
        // A list may arrive in parts: after a restart, what is no target any more is kept for ten minutes.
        let is_of_wrong_list = finding.kind == FindingKind::TargetDown
            && finding.entity.node.as_deref().is_some_and(is_hostile_host);
        let is_closed = finding.life.state == LifeState::Closed || is_of_wrong_list;
        if is_fault && !is_closed && (is_long || finding.life.state != LifeState::Flapping) {
            broken.push(format!("{} is open without a fault: {}", finding.id, finding.summary));
        }
    }
    let nodes = &aggregator.overview().nodes;
    if nodes.live as usize != NODES {
        broken.push(format!("{} of {NODES} nodes are live: {nodes:?}", nodes.live));
    }
    broken
}
