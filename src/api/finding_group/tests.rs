//! Tests of finding groups: membership, order and rendered text.

use super::*;
use crate::samples::idle_finding;

fn owned_by(name: &str) -> JobOwner {
    JobOwner { user: Some(name.into()), account: Some("ml".into()) }
}

#[test]
fn findings_of_one_kind_and_user_are_one_group_with_their_sum() {
    let mut findings: Vec<Finding> = (0..83).map(idle_finding).collect();
    let mut big = Finding { severity: Severity::Warning, ..idle_finding(900) };
    (big.kind, big.id) = (FindingKind::DataStarved, "data_starved/gpu006".into());
    findings.push(big);
    let groups = FindingGroup::group_findings(&findings, |_| owned_by("sam"));
    let [group] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!(group.id, "group/idle_allocated/info/sam");
    assert_eq!((group.members.len(), group.lost_gpus), (83, 664.0));
    assert_eq!(group.render_members(Some("664")), "83 jobs, 664 GPUs, user sam");
    assert_eq!((group.since, group.job.clone()), (UnixMs(0), None));
    let order = collect_lines(&findings, &groups);
    assert_eq!(order.len(), 2);
    assert_eq!(order[0].severity(), Severity::Warning, "what is urgent comes first");
    assert_eq!(order[1].finding_count(), 83);
}

#[test]
fn groups_are_placed_among_findings_in_their_order() {
    let mut findings: Vec<Finding> = (0..6).map(idle_finding).collect();
    let groups = FindingGroup::group_findings(&findings, |_| owned_by("sam"));
    let of_group = groups[0].lost_gpus;
    for (id, cost) in [("first", 60.0), ("second", 60.5), ("last", of_group - 1.0)] {
        let single = Finding { id: id.into(), lost_gpus: cost, ..idle_finding(900) };
        findings.push(Finding { kind: FindingKind::DataStarved, ..single });
    }
    let names = collect_lines(&findings, &groups).into_iter().map(|line| match line {
        FindingLine::Single(finding) => finding.id.clone(),
        FindingLine::Group(group) => format!("{} in a group", group.members.len()),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["first", "second", "6 in a group", "last"]);
}

#[test]
fn findings_of_many_users_are_one_group_that_names_their_account() {
    let findings: Vec<Finding> = (0..9).map(idle_finding).collect();
    let job_owner = |entity: &Entity| {
        let job: usize = entity.job.as_ref().unwrap().parse().unwrap();
        if job < 5 { owned_by("sam") } else { owned_by(["ada", "tom", "eva", "kim"][job - 5]) }
    };
    let groups = FindingGroup::group_findings(&findings, job_owner);
    let members: Vec<String> = groups.iter().map(|group| group.render_members(None)).collect();
    assert_eq!(members, ["5 jobs, user sam", "4 jobs, account ml"]);
    let unknown = FindingGroup::group_findings(&findings, |_| JobOwner::default());
    assert_eq!(unknown[0].render_members(None), "9 jobs");
}

#[test]
fn findings_stay_ungrouped_if_few_or_of_another_severity() {
    let mut findings: Vec<Finding> = (0..GROUP_FROM).map(idle_finding).collect();
    findings[0].severity = Severity::Warning;
    assert_eq!(FindingGroup::group_findings(&findings, |_| owned_by("sam")), []);
    findings.push(idle_finding(77));
    let groups = FindingGroup::group_findings(&findings, |_| owned_by("sam"));
    assert_eq!(groups[0].members.len(), GROUP_FROM);
    let order = collect_lines(&findings, &groups);
    assert!(matches!(order[0], FindingLine::Single(finding) if finding.id == findings[0].id));
    // Two groups with equal order are distinguished by cost.
    assert!(collect_lines(&findings, &[]).iter().all(|line| line.finding_count() == 1));
}
