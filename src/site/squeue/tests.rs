//! Tests of jobs as older and newer data parsers print them.

use super::*;

const NEWER: &str = r#"{"jobs": [
 {"job_id": 8812, "name": "pretrain", "user_name": "ann", "account": "physics", "partition": "gpu",
  "job_state": ["RUNNING"], "nodes": "gpu[001-002]",
  "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:2(IDX:1,3),gpu:mig:1(IDX:5)"],
  "start_time": {"set": true, "infinite": false, "number": 1760000000},
  "end_time": {"set": true, "infinite": true, "number": 0},
  "job_resources": {"nodes": {"count": 2, "list": "gpu[001-002]", "whole": false}}},
 {"job_id": 8813, "job_state": ["PENDING"], "nodes": "", "gres_detail": [],
  "start_time": {"set": true, "infinite": false, "number": 0}}
], "meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}, "errors": []}"#;

const OLDER: &str = r#"{"jobs": [
 {"job_id": 77, "name": "", "user_name": "bob", "job_state": "RUNNING", "nodes": "gpu9",
  "gres_detail": [], "start_time": 1701982989, "end_time": 1705313394, "shared": "none",
  "job_resources": {"nodes": "gpu9", "allocated_hosts": 1}}]}"#;

#[test]
fn newer_parser_gives_the_gpus_of_each_node() {
    let list = parse_jobs(NEWER, "squeue.json".into()).unwrap();
    let [job] = list.jobs.as_slice() else { panic!("{list:?}") };
    assert_eq!((job.id.as_str(), job.user.as_deref()), ("8812", Some("ann")));
    assert_eq!((job.account.as_deref(), job.partition.as_deref()), (Some("physics"), Some("gpu")));
    assert_eq!((job.started, job.ends), (Some(UnixMs(1_760_000_000_000)), None));
    assert_eq!(job.holds[0].gpus, Some((0..8).collect()));
    assert_eq!((job.holds[1].node.as_str(), &job.holds[1].gpus), ("gpu002", &Some(vec![1, 3, 5])));
}

#[test]
fn older_parser_writes_bare_numbers() {
    let list = parse_jobs(OLDER, "squeue.json".into()).unwrap();
    let job = &list.jobs[0];
    assert_eq!((&job.name, job.started), (&None, Some(UnixMs(1_701_982_989_000))));
    assert_eq!(job.holds, [JobAllocation { node: "gpu9".into(), gpus: None, whole: true }]);
}

#[test]
fn resources_that_do_not_match_the_nodes_are_not_assigned() {
    let text = NEWER.replace("\"gpu:h100:8(IDX:0-7)\", ", "");
    let list = parse_jobs(&text, "squeue.json".into()).unwrap();
    let unknown = |allocation: &JobAllocation| allocation.gpus.is_none() && !allocation.whole;
    assert!(list.jobs[0].holds.iter().all(unknown));
}

#[test]
fn node_without_gpus_and_gpus_without_numbers_leave_the_others_known() {
    let text = NEWER.replace("\"gpu:h100:8(IDX:0-7)\"", "null");
    let list = parse_jobs(&text, "squeue.json".into()).unwrap();
    let gpus: Vec<_> = list.jobs[0].holds.iter().map(|hold| hold.gpus.clone()).collect();
    assert_eq!(gpus, [Some(vec![]), Some(vec![1, 3, 5])]);
    let text = NEWER.replace("gpu:h100:8(IDX:0-7)", "gpu:h100(CNT:8)");
    let list = parse_jobs(&text, "squeue.json".into()).unwrap();
    assert_eq!(list.jobs[0].holds[0].gpus, None, "eight of them, and nobody says which");
}

#[test]
fn invalid_list_of_jobs_is_refused() {
    assert!(parse_jobs("{}", "s".into()).unwrap_err().what.contains("squeue --json"));
    assert_eq!(parse_jobs("{\n,", "s".into()).unwrap_err().line, 2);
    assert_eq!(parse_gpu_indices("gpu:1(IDX:0-4000000000),x"), Some((0..64).collect()));
}

/// What squeue printed for the jobs of two users, with two and one of the four GPUs of their node.
#[test]
fn lists_of_real_controllers_are_read() {
    for text in [
        include_str!("../../../tests/fixtures/squeue/slurm-22.05.json"),
        include_str!("../../../tests/fixtures/squeue/slurm-24.11.json"),
    ] {
        let list = parse_jobs(text, "squeue.json".into()).unwrap();
        let [first, other] = list.jobs.as_slice() else { panic!("{list:?}") };
        assert_eq!((first.name.as_deref(), first.user.as_deref()), (Some("pretrain"), Some("ann")));
        assert_eq!((other.name.as_deref(), other.user.as_deref()), (Some("finetune"), Some("bob")));
        assert!(first.started.is_some_and(|at| at > UnixMs(1_795_665_000_000)), "{first:?}");
        let holds = |gpus: &[u32]| JobAllocation {
            node: "gpu001".into(),
            gpus: Some(gpus.to_vec()),
            whole: false,
        };
        assert_eq!((&first.holds, &other.holds), (&vec![holds(&[0, 1])], &vec![holds(&[2])]));
    }
}

/// Slurm 22.05 lists ended jobs too, whatever states it is asked for.
#[test]
fn ended_jobs_of_a_real_controller_hold_nothing() {
    let text = include_str!("../../../tests/fixtures/squeue/slurm-22.05-exclusive.json");
    let list = parse_jobs(text, "squeue.json".into()).unwrap();
    let [job] = list.jobs.as_slice() else { panic!("{list:?}") };
    assert_eq!((job.id.as_str(), &job.holds[0].gpus), ("3", &Some(vec![0, 1, 2, 3])));
}

#[test]
fn list_without_an_answer_of_the_controller_is_refused() {
    let text = include_str!("../../../tests/fixtures/squeue/slurm-22.05-controller-down.json");
    let error = parse_jobs(text, "squeue.json".into()).unwrap_err();
    assert!(
        error.what.contains("Failed while looking for jobs; check `scontrol ping`"),
        "{error:?}"
    );
}
