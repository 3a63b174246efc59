//! A user with a console at a pair in simulated time: questions every second, actions now and then, and what must hold of
//! the answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt::answer_source::AggregatorClient;
use gaunt_api::{Answer, FindingAction, FindingCommand, FindingList, Question};
use gaunt_schema::{Severity, UnixMs};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::simulated_network::SimulatedNetwork;

/// What the console asks each second.
const QUESTIONS: &[&str] = &["overview", "findings", "table/nodes"];

/// The longest time for any answer, be it an error: five seconds at each of two aggregators, and the questions whether
/// they are alive.
const LONGEST_ANSWER: Duration = Duration::from_secs(13);

/// The longest time for an answer while one of the two is reachable: a move takes less than two seconds.
const LONGEST_MOVE: Duration = Duration::from_millis(2_500);

/// How long an aggregator must have been reachable for that: a stream that fell silent before breaks after eight seconds, and
/// is resumed after one more.
const REACHABLE_FOR: Duration = Duration::from_secs(10);

/// The oldest answer that is shown as present: a stream that is silent for eight seconds is an error.
const OLDEST_ANSWER: Duration = Duration::from_secs(10);

/// What the user was told about an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldAction {
    pub(crate) is_acknowledged: bool,
    pub(crate) severity: Severity,
    pub(crate) opened: UnixMs,
}

/// A user; clones are the same.
#[derive(Clone)]
pub(crate) struct ConsoleUser {
    client: AggregatorClient,
    network: SimulatedNetwork,
    state: Arc<Mutex<UserState>>,
}

#[derive(Debug, Default)]
struct UserState {
    /// Since when each aggregator runs and can be reached.
    reachable_since: [Option<Instant>; 2],
    told: BTreeMap<String, ToldAction>,
    /// Withdrawals that were tried, by finding.
    withdrawals: BTreeMap<String, usize>,
    acts: bool,
    answers: u64,
    errors: u64,
    broken: Vec<String>,
}

impl ConsoleUser {
    pub(crate) fn new(client: AggregatorClient, network: SimulatedNetwork) -> Self {
        Self { client, network, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, UserState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells which aggregators run and can be reached now.
    pub(crate) fn note_reachable(&self, reachable: [bool; 2]) {
        for (since, is_reachable) in self.state().reachable_since.iter_mut().zip(reachable) {
            *since = is_reachable.then(|| since.unwrap_or_else(Instant::now));
        }
    }

    /// What does not hold.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.state().broken)
    }

    /// What the user was told, by finding.
    pub(crate) fn told(&self) -> BTreeMap<String, ToldAction> {
        self.state().told.clone()
    }

    /// Withdrawals of a finding that were tried.
    pub(crate) fn withdrawal_count(&self, finding: &str) -> usize {
        self.state().withdrawals.get(finding).copied().unwrap_or_default()
    }

    /// Answers and errors so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.answers, state.errors)
    }

    /// Whether an action is on its way.
    pub(crate) fn is_acting(&self) -> bool {
        self.state().acts
    }

    /// Asks every second.
    pub(crate) async fn watch(self) {
        let questions = QUESTIONS.iter().filter_map(|line| Question::parse_line(line, &[]).ok());
        let questions: Vec<Question> = questions.collect();
        loop {
            for question in &questions {
                let asked = Instant::now();
                let answer = self.client.ask_question(question).await;
                self.check_answer(question, asked, answer.map_err(|error| error.to_string()));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    fn check_answer(&self, question: &Question, asked: Instant, answer: Result<Answer, String>) {
        let (took, now) = (asked.elapsed(), self.network.now());
        let mut state = self.state();
        let reachable = state.reachable_since.iter().flatten();
        let is_reachable = reachable.into_iter().any(|since| *since + REACHABLE_FOR < asked);
        let limit = if is_reachable { LONGEST_MOVE } else { LONGEST_ANSWER };
        if took > limit {
            state.broken.push(format!("{question:?} takes {took:?}: {:?}", answer.as_ref().err()));
        }
        match answer {
            Ok(Answer::Overview(overview)) => {
                state.answers += 1;
                let age = now.duration_since(overview.at);
                if overview.at > now || age > OLDEST_ANSWER {
                    state.broken.push(format!("an overview of {:?} at {now:?}", overview.at));
                }
            }
            Ok(Answer::Refused(why)) => {
                state.broken.push(format!("{question:?} is refused: {why:?}"));
            }
            Ok(_) => state.answers += 1,
            Err(why) => {
                state.errors += 1;
                if is_reachable {
                    state.broken.push(format!("{question:?} has no answer: {why}"));
                }
            }
        }
    }

    /// Acts on a finding of a list, and waits for the answer.
    pub(crate) fn act(
        &self,
        list: &FindingList,
        chosen: usize,
        withdraws: bool,
        tasks: &mut JoinSet<()>,
    ) {
        let Some(finding) = list.findings.get(chosen) else { return };
        let (user, id) = (self.clone(), finding.id.clone());
        let told = ToldAction {
            is_acknowledged: !withdraws,
            severity: finding.severity,
            opened: finding.life.opened,
        };
        let command = if withdraws {
            FindingCommand::Withdraw
        } else {
            FindingCommand::Acknowledge { note: "seen".into() }
        };
        {
            let mut state = self.state();
            state.acts = true;
            // Until the answer, what holds is not known.
            state.told.remove(&id);
            if withdraws {
                *state.withdrawals.entry(id.clone()).or_default() += 1;
            }
        }
        tasks.spawn(async move {
            let action =
                FindingAction { finding: id.clone(), by: "sam".into(), command, seen: None };
            let answer = user.client.send_action(&action).await;
            let mut state = user.state();
            state.acts = false;
            if matches!(answer, Ok(Answer::Finding(_))) {
                state.told.insert(id, told);
            }
        });
    }
}
