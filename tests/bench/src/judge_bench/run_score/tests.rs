//! Tests of the score: flags that are right, late, misnamed, on the wrong entity, duplicate or false.

use gaunt_api::Finding;

use super::*;

const TERMS: ScoreTerms = ScoreTerms { labels: true, grace: Duration::ZERO };

fn node_entity(name: &str) -> Entity {
    Entity::new_node(&SanitizedText::new(name))
}

fn at_second(second: i64) -> UnixMs {
    UnixMs(second * 1_000)
}

/// Node `a` has data starvation from second 100 to 200, with a detection limit of 30 seconds; `b` and `c` wait for it.
fn starvation_truth() -> GroundTruth {
    GroundTruth {
        kind: FindingKind::DataStarved,
        blamed: node_entity("a"),
        also: Vec::new(),
        kinds: vec![FindingKind::HostBound],
        follows: Vec::new(),
        onset: at_second(100),
        ends: Some(at_second(200)),
        limit: Duration::from_secs(30),
        victims: vec![node_entity("b"), node_entity("c")],
    }
}

fn flag_episode(
    second: i64,
    kind: FindingKind,
    entity: Entity,
    severity: Severity,
) -> FindingEpisode {
    let when = at_second(second);
    FindingEpisode {
        opened: when,
        closed: None,
        worst: severity,
        warned: (severity >= Severity::Warning).then_some(when),
        paged: (severity == Severity::Critical).then_some(when),
        rank: 0,
        finding: Finding {
            id: format!("{kind}/{entity}"),
            since: when,
            confidence: 0.9,
            ..Finding::new(kind, severity, entity)
        }
        .with_lost_gpus(1.0),
    }
}

fn page_episode(second: i64, kind: FindingKind, name: &str) -> FindingEpisode {
    flag_episode(second, kind, node_entity(name), Severity::Critical)
}

/// Whether the fault was found in time, seconds to the right flag, whether it blames the right entity, the kind it was
/// mistaken for, false flags and pages.
type ScoreFacts = (bool, Option<u64>, Option<bool>, Option<FindingKind>, usize, u32);

fn score_starvation(episodes: &[FindingEpisode]) -> ScoreFacts {
    let score = score_run(&[starvation_truth()], episodes, TERMS);
    let answer = &score.answers[0];
    (
        answer.in_time().is_some(),
        answer.flag.map(|found| found.delay.as_secs()),
        answer.flag.map(|found| found.is_blame_right),
        answer.misnamed,
        score.false_flags.len(),
        score.false_pages,
    )
}

#[test]
fn flag_of_an_accepted_kind_in_the_window_answers_the_fault() {
    use FindingKind::{DataStarved, HostBound};
    let expected = (true, Some(20), Some(true), None, 0, 0);
    assert_eq!(score_starvation(&[page_episode(120, DataStarved, "a")]), expected);
    assert_eq!(score_starvation(&[page_episode(120, HostBound, "a")]), expected);
    assert_eq!(score_starvation(&[]), (false, None, None, None, 0, 0));
    // The last instant still counts; the next one is late, and neither false nor in time.
    assert_eq!(
        score_starvation(&[page_episode(130, DataStarved, "a")]),
        (true, Some(30), Some(true), None, 0, 0)
    );
    assert_eq!(
        score_starvation(&[page_episode(131, DataStarved, "a")]),
        (false, Some(31), Some(true), None, 0, 0)
    );
}

#[test]
fn slow_scrapes_extend_the_limit() {
    let episodes = [page_episode(150, FindingKind::DataStarved, "a")];
    let terms = ScoreTerms { grace: Duration::from_secs(45), ..TERMS };
    let answer = &score_run(&[starvation_truth()], &episodes, terms).answers[0];
    assert_eq!((answer.limit.as_secs(), answer.in_time().is_some()), (75, true));
}

#[test]
fn flag_before_the_onset_or_long_after_the_end_is_false() {
    use FindingKind::DataStarved;
    assert_eq!(
        score_starvation(&[page_episode(99, DataStarved, "a")]),
        (false, None, None, None, 1, 1)
    );
    assert_eq!(
        score_starvation(&[page_episode(230, DataStarved, "a")]),
        (false, Some(130), Some(true), None, 0, 0)
    );
    assert_eq!(
        score_starvation(&[page_episode(231, DataStarved, "a")]),
        (false, None, None, None, 1, 1)
    );
    // It was open before as an info finding: it is not about the fault.
    let mut early = page_episode(120, DataStarved, "a");
    early.opened = at_second(50);
    assert_eq!(score_starvation(&[early]), (false, None, None, None, 1, 1));
}

#[test]
fn wrong_kind_on_the_right_entity_is_misnamed_and_a_miss() {
    let episodes = [page_episode(120, FindingKind::Throttled, "a")];
    let misnamed = Some(FindingKind::Throttled);
    assert_eq!(score_starvation(&episodes), (false, None, None, misnamed, 0, 0));
    // After the right finding it is only an additional one.
    let episodes = [episodes[0].clone(), page_episode(121, FindingKind::DataStarved, "a")];
    assert_eq!(score_starvation(&episodes), (true, Some(21), Some(true), None, 0, 0));
}

#[test]
fn victim_blamed_first_is_a_wrong_blame_and_others_are_false() {
    use FindingKind::DataStarved;
    let episodes = [
        page_episode(110, DataStarved, "b"),
        page_episode(112, DataStarved, "a"),
        page_episode(113, DataStarved, "c"),
    ];
    assert_eq!(score_starvation(&episodes), (true, Some(10), Some(false), None, 1, 1));
    // Within one tick the judge's own order decides.
    let mut episodes = [page_episode(110, DataStarved, "b"), page_episode(110, DataStarved, "a")];
    episodes[0].rank = 1;
    assert_eq!(score_starvation(&episodes), (true, Some(10), Some(true), None, 1, 1));
    // An unrelated node answers nothing.
    assert_eq!(
        score_starvation(&[page_episode(110, DataStarved, "z")]),
        (false, None, None, None, 1, 1)
    );
}

#[test]
fn flapping_is_one_false_flag_and_many_pages() {
    let episodes = [10, 30, 50].map(|second| page_episode(second, FindingKind::PortDown, "z"));
    assert_eq!(score_starvation(&episodes), (false, None, None, None, 1, 3));
    let warning = flag_episode(10, FindingKind::PortDown, node_entity("z"), Severity::Warning);
    assert_eq!(score_starvation(&[warning]), (false, None, None, None, 1, 0));
}

#[test]
fn info_finding_is_no_flag_but_answers_a_fault_that_only_costs() {
    let info_episode = |kind| flag_episode(120, kind, node_entity("a"), Severity::Info);
    assert_eq!(
        score_starvation(&[info_episode(FindingKind::DataStarved)]),
        (false, None, None, None, 0, 0)
    );
    let idle = GroundTruth { kind: FindingKind::IdleAllocated, ..starvation_truth() };
    let score = score_run(&[idle], &[info_episode(FindingKind::IdleAllocated)], TERMS);
    assert!(score.answers[0].in_time().is_some());
}

#[test]
fn own_telemetry_warning_is_not_false_and_a_page_is() {
    let kind = FindingKind::TargetDown;
    assert_eq!(
        score_starvation(&[flag_episode(10, kind, node_entity("z"), Severity::Warning)]).4,
        0
    );
    assert_eq!(
        score_starvation(&[flag_episode(10, kind, node_entity("z"), Severity::Critical)]).4,
        1
    );
}

#[test]
fn entity_is_matched_by_its_key_and_not_by_other_labels() {
    let port = |name: &str| {
        Entity::new_port(
            &SanitizedText::new(name),
            &SanitizedText::new("mlx5_1"),
            &SanitizedText::new("1"),
        )
    };
    let with_labels = Entity {
        leaf: Some(SanitizedText::new("leaf-1")),
        job: Some(SanitizedText::new("7")),
        ..port("a")
    };
    assert!(is_same_entity(&port("a"), &with_labels));
    assert!(!is_same_entity(&port("a"), &port("b")));
    assert!(!is_same_entity(&port("a"), &node_entity("a")));
    let without_port = Entity { port: None, ..port("a") };
    assert!(!is_same_entity(&port("a"), &without_port));
}

#[test]
fn unnamed_job_is_matched_by_its_nodes() {
    let job =
        |name: &str| Entity { job: Some(SanitizedText::new(name)), ..Entity::new(EntityKind::Job) };
    let truth = GroundTruth {
        kind: FindingKind::CollectiveHang,
        blamed: job("8812"),
        ..starvation_truth()
    };
    let mut episode =
        flag_episode(120, FindingKind::CollectiveHang, job("gang 1"), Severity::Critical);
    episode.finding.victims = vec![node_entity("b")];
    let blames = |episode: &FindingEpisode, labels| {
        let terms = ScoreTerms { labels, ..TERMS };
        let score = score_run(std::slice::from_ref(&truth), std::slice::from_ref(episode), terms);
        score.answers[0].flag.map(|found| found.is_blame_right)
    };
    assert_eq!(blames(&episode, false), Some(true));
    assert_eq!(blames(&episode, true), Some(false));
    episode.finding.victims = vec![node_entity("z")];
    assert_eq!(blames(&episode, false), None);
}

#[test]
fn consequence_is_neither_right_nor_wrong() {
    let job =
        |name: &str| Entity { job: Some(SanitizedText::new(name)), ..Entity::new(EntityKind::Job) };
    let follows = vec![(FindingKind::CollectiveHang, job("8812"))];
    let truth = GroundTruth { follows, ..starvation_truth() };
    let score_of = |second: i64, kind, name: &str| {
        let episode = flag_episode(second, kind, job(name), Severity::Critical);
        let score = score_run(std::slice::from_ref(&truth), &[episode], TERMS);
        (score.answers[0].flag.is_some(), score.false_flags.len(), score.false_pages)
    };
    assert_eq!(score_of(160, FindingKind::CollectiveHang, "8812"), (false, 0, 0));
    // Before the fault, about another job, or another kind on this one, it is not a consequence.
    assert_eq!(score_of(60, FindingKind::CollectiveHang, "8812"), (false, 1, 1));
    assert_eq!(score_of(160, FindingKind::CollectiveHang, "8813"), (false, 1, 1));
    assert_eq!(score_of(160, FindingKind::StorageSlow, "8812"), (false, 1, 1));
}

#[test]
fn gpu_pair_is_matched_by_either_of_its_gpus() {
    let pair = |gpus: &str| Entity {
        kind: EntityKind::GpuPair,
        ..Entity::new_gpu(&SanitizedText::new("a"), &SanitizedText::new(gpus))
    };
    assert!(is_same_entity(&pair("5"), &pair("5")));
    assert!(is_same_entity(&pair("5"), &pair("2-5")));
    assert!(!is_same_entity(&pair("5"), &pair("2-15")));
    assert!(!is_same_entity(&pair("5"), &Entity { node: None, ..pair("2-5") }));
}

#[test]
fn two_faults_need_two_flags() {
    let other = GroundTruth {
        blamed: node_entity("b"),
        victims: vec![node_entity("a")],
        ..starvation_truth()
    };
    let episodes = [page_episode(120, FindingKind::DataStarved, "a")];
    let count_found = |episodes: &[FindingEpisode]| {
        // The fault whose node is flagged second is evaluated first.
        let score = score_run(&[other.clone(), starvation_truth()], episodes, TERMS);
        score.answers.iter().filter(|answer| answer.in_time().is_some()).count()
    };
    assert_eq!(count_found(&episodes), 1);
    assert_eq!(
        count_found(&[episodes[0].clone(), page_episode(125, FindingKind::DataStarved, "b")]),
        2
    );
}
