//! Two equal aggregators: actions are passed on, and one that starts takes over what the other knows.

use gaunt_api::{
    FindingAction, FindingCommand, PeerAction, PeerCommand, PeerOutcome, Refusal, SeenFinding,
};
use gaunt_schema::Severity;

use super::*;
use crate::{MAX_PEER_PAST, PeerSnapshot, PersistedState, RecordedPast};

const PORT: &str = "port_down/gpu006/mlx5_3/1";

/// A fleet that is read every ten seconds, so that all its findings are open after two minutes.
fn run_until_open(seconds: i64) -> EngineTestRun {
    let mut run = EngineTestRun::with_period(10, "demo", 32, 7);
    while run.second < seconds {
        run.step_period();
    }
    run
}

fn act(run: &mut EngineTestRun, by: &str, command: FindingCommand) {
    let action = FindingAction { finding: PORT.to_owned(), by: by.into(), command, seen: None };
    let answer = run.engine.handle_action(&action);
    assert!(!matches!(answer, Answer::Refused(_)), "{answer:?}");
}

fn acknowledge(run: &mut EngineTestRun, by: &str) {
    act(run, by, FindingCommand::Acknowledge { note: "cable ordered".into() });
}

/// Who acknowledged the port's finding, as its list of open findings says.
fn acknowledged_by(run: &mut EngineTestRun) -> Option<String> {
    let open = run.open_findings();
    let finding = open.iter().find(|finding| finding.id == PORT)?;
    finding.acknowledged.as_ref().map(|held| held.by.to_string())
}

/// Passes all actions of one on to the other, in any order, as often as given.
fn pass_actions(from: &EngineTestRun, to: &mut EngineTestRun, times: usize) -> Vec<PeerOutcome> {
    let actions = from.engine.actions_to_pass();
    let repeated = (0..times).flat_map(|_| actions.iter().rev().cloned());
    repeated.map(|action| to.engine.handle_peer_action(action)).collect()
}

#[test]
fn action_at_one_aggregator_is_applied_once_at_the_other() {
    let (mut one, mut other) = (run_until_open(120), run_until_open(120));
    acknowledge(&mut one, "alice");
    assert_eq!(pass_actions(&one, &mut other, 3), [PeerOutcome::Taken; 3]);
    assert_eq!(acknowledged_by(&mut other).as_deref(), Some("alice"));
    let open = other.open_findings();
    let finding = open.iter().find(|finding| finding.id == PORT).unwrap();
    let noted = finding.life.changes.iter().filter(|change| change.to.as_str() == "alice");
    assert_eq!(noted.count(), 1, "{:?}", finding.life.changes);
    // The other withdraws it; the first one hears its own action of before again, and keeps what is later.
    let first = one.engine.actions_to_pass();
    act(&mut other, "bob", FindingCommand::Withdraw);
    assert_eq!(other.engine.handle_peer_action(first[0].clone()), PeerOutcome::Superseded);
    assert_eq!(pass_actions(&other, &mut one, 2), [PeerOutcome::Taken; 2]);
    assert_eq!((acknowledged_by(&mut one), acknowledged_by(&mut other)), (None, None));
    // Each acts on what it shows now. A request that comes after another action, however late, changes nothing.
    let open = one.open_findings();
    let seen = open.iter().find(|finding| finding.id == PORT).map(SeenFinding::of);
    let command = FindingCommand::Acknowledge { note: "".into() };
    let action = FindingAction { finding: PORT.to_owned(), by: "carol".into(), command, seen };
    assert!(matches!(one.engine.handle_action(&action), Answer::Finding(_)));
    act(&mut one, "bob", FindingCommand::Withdraw);
    let late = one.engine.handle_action(&action);
    assert!(matches!(late, Answer::Refused(Refusal::ActedMeanwhile { .. })), "{late:?}");
    assert_eq!(acknowledged_by(&mut one), None);
}

#[test]
fn later_of_two_actions_holds_at_both() {
    let (mut one, mut other) = (run_until_open(120), run_until_open(130));
    acknowledge(&mut one, "alice");
    acknowledge(&mut other, "bob");
    let (from_one, from_other) = (one.engine.actions_to_pass(), other.engine.actions_to_pass());
    for action in from_one {
        assert_eq!(other.engine.handle_peer_action(action), PeerOutcome::Superseded);
    }
    for action in from_other {
        assert_eq!(one.engine.handle_peer_action(action), PeerOutcome::Taken);
    }
    for run in [&mut one, &mut other] {
        assert_eq!(acknowledged_by(run).as_deref(), Some("bob"));
    }
    // An action here comes after what is known of a clock that is ahead.
    let ahead = PeerAction {
        finding: PORT.to_owned(),
        at: START + Duration::from_hours(1),
        by: "carol".into(),
        command: PeerCommand::Withdraw,
    };
    assert_eq!(one.engine.handle_peer_action(ahead), PeerOutcome::Taken);
    acknowledge(&mut one, "dave");
    assert_eq!(pass_actions(&one, &mut other, 1), [PeerOutcome::Taken]);
    assert_eq!(acknowledged_by(&mut other).as_deref(), Some("dave"));
}

#[test]
fn action_waits_for_its_finding_to_open() {
    let mut one = run_until_open(120);
    acknowledge(&mut one, "alice");
    let mut other = EngineTestRun::with_period(10, "demo", 32, 7);
    assert_eq!(pass_actions(&one, &mut other, 2), [PeerOutcome::Waiting; 2]);
    let mut opened = false;
    while other.second < 120 {
        other.step_period();
        let open = other.open_findings();
        for finding in open.iter().filter(|finding| finding.id == PORT) {
            opened = true;
            assert!(finding.acknowledged.is_some(), "from its first second on");
        }
    }
    assert!(opened);
}

#[test]
fn acknowledgement_of_a_lower_severity_lapses_at_the_other_too() {
    let mut one = run_until_open(120);
    let action = |severity| PeerAction {
        finding: PORT.to_owned(),
        at: START,
        by: "alice".into(),
        command: PeerCommand::Acknowledge { note: "".into(), severity },
    };
    assert_eq!(one.engine.handle_peer_action(action(Severity::Info)), PeerOutcome::Taken);
    assert_eq!(acknowledged_by(&mut one), None);
    assert!(one.engine.actions_to_pass().is_empty(), "what lapsed is not passed on");
    assert_eq!(one.engine.handle_peer_action(action(Severity::Info)), PeerOutcome::Taken);
    assert_eq!(acknowledged_by(&mut one), None, "it was known");
}

/// What an aggregator sends to a peer that starts.
fn snapshot_of(run: &EngineTestRun) -> PeerSnapshot {
    let state = run.engine.persisted_state().unwrap();
    let past = run.engine.recorded_past(MAX_PEER_PAST);
    let packed = PeerSnapshot::pack_state(&state, &past, state.saved_at.unwrap()).unwrap();
    PeerSnapshot::unpack(&packed).unwrap()
}

#[test]
fn new_aggregator_takes_over_findings_actions_and_baselines() {
    let mut one = run_until_open(0);
    one.engine.options.says_usual = true;
    while one.second < 1_000 {
        one.step_period();
    }
    acknowledge(&mut one, "alice");
    let open: Vec<_> =
        one.open_findings().iter().map(|it| (it.id.clone(), it.life.opened)).collect();
    let now = START + Duration::from_secs(1_000);
    let joined = PersistedState::default().join_peer(snapshot_of(&one), now);
    let (state, takeover) = joined.unwrap();
    assert_eq!(
        (takeover.open_findings, takeover.actions, takeover.baselines),
        (open.len(), 1, true)
    );
    let mut other = EngineTestRun::with_period(10, "demo", 32, 7);
    let options = other.engine.options.clone();
    other.engine = Engine::from_peer(options, state);
    other.engine.run_tick(now);
    let taken: Vec<_> =
        other.open_findings().iter().map(|it| (it.id.clone(), it.life.opened)).collect();
    assert_eq!(taken, open);
    assert_eq!(acknowledged_by(&mut other).as_deref(), Some("alice"));
    assert_eq!(other.engine.actions_to_pass(), one.engine.actions_to_pass());
}

/// What the peer saw in the last quarter of an hour is known at once, also of what has not been read yet.
#[test]
fn new_aggregator_has_the_history_of_its_peer() {
    let mut one = run_until_open(1_000);
    let past = snapshot_of(&one).take_past();
    let mut other = EngineTestRun::with_period(10, "demo", 32, 7);
    let options = other.engine.options.clone();
    other.engine = Engine::from_peer(options, PersistedState::default()).recalling_past(&past);
    other.engine.ingest_delivery(targets_of(32));
    other.second = one.second;
    for run in [&mut one, &mut other] {
        run.step_period();
    }
    let question = "history?metric=power&filter=node=gpu006 and gpu=3&points=90";
    let question = Question::parse_line(question, &[]).unwrap();
    let [before, taken] = [&one, &other].map(|run| match run.engine.answer_question(&question) {
        Answer::History(history) => history.mean.clone(),
        answer => panic!("no history: {answer:?}"),
    });
    let known = |points: &[Option<f32>]| points.iter().filter(|point| point.is_some()).count();
    assert!(known(&before) >= 50, "{before:?}");
    assert!(known(&taken) + 1 >= known(&before), "{taken:?}");
}

#[test]
fn restarted_aggregator_takes_what_its_peer_knows_better() {
    let mut one = run_until_open(120);
    acknowledge(&mut one, "alice");
    let saved = one.engine.persisted_state().unwrap();
    let mut peer = run_until_open(120);
    pass_actions(&one, &mut peer, 1);
    act(&mut peer, "bob", FindingCommand::Withdraw);
    peer.engine.options.says_usual = true;
    while peer.second < 1_100 {
        peer.step_period();
    }
    let now = START + Duration::from_secs(1_100);
    let (state, takeover) = saved.clone().join_peer(snapshot_of(&peer), now).unwrap();
    assert_eq!((takeover.open_findings, takeover.baselines), (1, true), "GPUs idle for 9 min");
    let options = one.engine.options.clone();
    one.engine = Engine::from_persisted(options, state);
    one.engine.run_tick(now);
    assert_eq!(acknowledged_by(&mut one), None, "it was withdrawn meanwhile");
    // A peer that has just started knows nothing better.
    let newcomer = snapshot_of(&EngineTestRun::with_period(10, "demo", 32, 7));
    let (state, takeover) = saved.clone().join_peer(newcomer, now).unwrap();
    assert_eq!((takeover.open_findings, takeover.actions, takeover.baselines), (0, 0, false));
    assert_eq!(state, saved);
}

#[test]
fn peer_snapshot_that_cannot_be_read_is_refused_with_the_next_step() {
    let state = run_until_open(20).engine.persisted_state().unwrap();
    let whole = PeerSnapshot::pack_state(&state, &RecordedPast::default(), START).unwrap();
    assert!(PeerSnapshot::unpack(&whole).is_ok());
    for wrong in [&whole[..whole.len() / 2], b"{}", b""] {
        let why = PeerSnapshot::unpack(wrong).unwrap_err();
        assert!(why.contains("use the same version"), "{why}");
    }
}
