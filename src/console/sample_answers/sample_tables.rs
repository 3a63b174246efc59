//! Sample tables, a sample job and sample fabrics for tests of screens.

use std::collections::BTreeMap;

use gaunt_schema::{AbsenceReason, FindingKind, GpuState, SanitizedText, probe_pairing::PairTool};

use super::{AT, port_down_finding};
use gaunt_api::{
    AnswerCells, AnswerColumn, AnswerTable, FabricCellColumns, FabricMatrix, GpuTimeline,
    JobDetail, JobTimeline, PairEnd, ProbeMatrix, ProbePair, ProbeSuspect, RailMatrix, StateCount,
    StateTime, Subject, SuspectKind,
};

/// Builds a table of text and number columns.
pub(crate) fn build_table(subject: Subject, columns: Vec<(&str, AnswerCells)>) -> AnswerTable {
    let rows = columns.first().map_or(0, |(_, cells)| match cells {
        AnswerCells::Numbers { values, .. } => values.len(),
        AnswerCells::Texts { codes, .. } => codes.len(),
    }) as u32;
    let column = |(name, cells): (&str, AnswerCells)| {
        let name = name.to_owned();
        AnswerColumn { name, metric: None, unit: None, cells }
    };
    let columns = columns.into_iter().map(column).collect();
    AnswerTable { at: AT, subject, total: rows, matched: rows, offset: 0, rows, columns }
}

/// Builds text cells; an empty text means no value.
pub(crate) fn text_cells(texts: &[&str]) -> AnswerCells {
    let codes = texts.iter().enumerate();
    let codes = codes.map(|(at, text)| (!text.is_empty()).then_some(at as u32)).collect();
    AnswerCells::Texts { words: texts.iter().map(|text| SanitizedText::new(text)).collect(), codes }
}

pub(crate) fn number_cells(values: &[Option<f64>]) -> AnswerCells {
    AnswerCells::Numbers { values: values.to_vec(), absent: BTreeMap::new() }
}

/// Builds the cables of one cell: one is down, and of one the other end is unknown.
pub(crate) fn cable_table() -> AnswerTable {
    build_table(
        Subject::Ports,
        vec![
            ("node", text_cells(&["gpu003", "gpu001", "gpu002"])),
            ("device", text_cells(&["mlx5_2", "mlx5_2", "mlx5_2"])),
            ("port", text_cells(&["1", "1", "1"])),
            ("leaf", text_cells(&["leaf-00", "leaf-00", "leaf-00"])),
            ("switch_port", text_cells(&["17", "15", ""])),
            ("state", text_cells(&["down", "active", "active"])),
            ("load", number_cells(&[None, Some(0.39), Some(0.38)])),
            ("finding", text_cells(&["port_down", "", ""])),
        ],
    )
}

/// Builds the GPUs of two NVLink domains, one of which loses time.
pub(crate) fn domain_table() -> AnswerTable {
    build_table(
        Subject::Gpus,
        vec![
            ("domain", text_cells(&["rack-1", "rack-1", "rack-2", "rack-2"])),
            ("lost", number_cells(&[Some(0.0), Some(0.0), Some(1.0), Some(0.5)])),
            ("finding", text_cells(&["", "", "fabric_degraded", "fabric_degraded"])),
        ],
    )
}

/// Builds the GPU table of two nodes, with every column of the list.
pub(crate) fn gpu_table() -> AnswerTable {
    gpu_table_from(1)
}

/// Builds the GPU table of two nodes, with the number of the first one.
fn gpu_table_from(first: usize) -> AnswerTable {
    let rows = 0..16_usize;
    let node: Vec<String> = rows.clone().map(|row| format!("gpu{:03}", first + row / 8)).collect();
    let node: Vec<&str> = node.iter().map(String::as_str).collect();
    let gpu = ["0", "1", "2", "3", "4", "5", "6", "7"].repeat(2);
    let state: Vec<&str> =
        rows.clone().map(|row| if row == 5 { "throttled" } else { "waiting" }).collect();
    let of = |value: &dyn Fn(usize) -> Option<f64>| {
        number_cells(&rows.clone().map(value).collect::<Vec<_>>())
    };
    let finding: Vec<&str> =
        rows.clone().map(|row| if row == 5 { "throttled" } else { "" }).collect();
    let mut active = of(&|_| None);
    if let AnswerCells::Numbers { absent, .. } = &mut active {
        absent.insert(AbsenceReason::NoPermission, (0..16).collect());
    }
    build_table(
        Subject::Gpus,
        vec![
            ("node", text_cells(&node)),
            ("gpu", text_cells(&gpu)),
            ("state", text_cells(&state)),
            ("job", text_cells(&["8812"; 16])),
            ("utilization", of(&|_| Some(1.0))),
            ("lost", of(&|_| Some(1.0))),
            ("power", of(&|row| Some(180.0 + row as f64 * 30.0))),
            ("temperature", of(&|row| (row != 3).then_some(52.0))),
            ("memory_used", of(&|_| Some(61.2 * f64::from(1 << 30)))),
            ("finding", text_cells(&finding)),
            ("sm_active", active),
            ("tensor_active", of(&|_| Some(0.41))),
            ("sm_clock", of(&|_| Some(1.98e9))),
            ("user", text_cells(&["alice"; 16])),
            ("model", text_cells(&["NVIDIA H100 80GB HBM3"; 16])),
        ],
    )
}

/// Builds three jobs of two users; one of the jobs has no known user.
pub(crate) fn job_table() -> AnswerTable {
    build_table(
        Subject::Jobs,
        vec![
            ("job", text_cells(&["8812", "8840", "9001"])),
            ("job_name", text_cells(&["llama-pt", "vit", ""])),
            ("user", text_cells(&["alice", "alice", ""])),
            ("account", text_cells(&["llm", "vision", ""])),
            ("gpus", number_cells(&[Some(128.0), Some(64.0), Some(8.0)])),
            ("lost", number_cells(&[Some(60.0), Some(0.0), Some(0.0)])),
            ("useful", number_cells(&[Some(0.53), Some(1.0), None])),
            ("nodes", number_cells(&[Some(16.0), Some(8.0), Some(1.0)])),
            ("gpu_power", number_cells(&[Some(50_000.0), Some(40_000.0), None])),
            ("finding", text_cells(&["port_down", "", ""])),
            ("runtime", number_cells(&[Some(273_600.0), Some(900.0), None])),
        ],
    )
}

/// Builds a job in which one GPU does not wait.
pub(crate) fn job_detail() -> JobDetail {
    let strip = |gpu: u32, states: String, odd_ratio: f64| GpuTimeline {
        node: "gpu003".into(),
        gpu: SanitizedText::new(&gpu.to_string()),
        states,
        odd_ratio,
    };
    let mut strips = vec![strip(5, "C".repeat(120), 0.96)];
    strips.extend((0..8).filter(|gpu| *gpu != 5).map(|gpu| strip(gpu, "w".repeat(120), 0.0)));
    JobDetail {
        at: AT,
        job: "8812".into(),
        line: job_table(),
        states: vec![
            StateCount { state: GpuState::Computing, gpus: 68 },
            StateCount { state: GpuState::Waiting, gpus: 60 },
        ],
        lost_gpus: 60.0,
        gpus: gpu_table_from(2),
        findings: vec![port_down_finding()],
        past: JobTimeline {
            step_ms: 1_000,
            most: "CCCCC".to_owned() + &"w".repeat(115),
            strips,
            span_ms: 1_800_000,
            lost: vec![
                StateTime { state: GpuState::Waiting, gpu_hours: 12.4 },
                StateTime { state: GpuState::DataStarved, gpu_hours: 1.1 },
            ],
        },
    }
}

/// Builds four leaves by four rails, one of them paused, one with a port that is down.
pub(crate) fn leaf_rail_fabric() -> FabricMatrix {
    let names =
        |prefix: &str| (0..4).map(|n| SanitizedText::new(&format!("{prefix}{n}"))).collect();
    let mut cells = FabricCellColumns::default();
    for cell in 0..16_u32 {
        let (leaf, rail) = (cell / 4, cell % 4);
        let (paused, down) = (cell == 6, cell == 9);
        cells.leaf.push(leaf);
        cells.rail.push(rail);
        cells.ports.push(8);
        cells.active.push(if down { 7 } else { 8 });
        cells.receive_ratio.push(Some(0.41 - rail as f32 * 0.01));
        cells.transmit_ratio.push(Some(0.38));
        cells.busiest_ratio.push(Some(0.52));
        cells.pause_received_ratio.push(Some(if paused { 0.091 } else { 0.0 }));
        cells.pause_sent_ratio.push(if leaf == 3 { None } else { Some(0.0) });
        cells.cnp_handled_per_second.push(Some(if paused { 412.0 } else { 0.0 }));
        cells.ecn_marked_per_second.push(Some(0.0));
        cells.errors_per_second.push(Some(if down { 2.5 } else { 0.0 }));
        cells.downs_per_second.push(Some(0.0));
        cells.finding.push(down.then_some(FindingKind::PortDown));
    }
    FabricMatrix {
        at: AT,
        total: 128,
        matched: 128,
        leaves: names("leaf-0"),
        rails: names(""),
        cells,
    }
}

/// Builds eight nodes below two leaves, on two rails; one port of the first is slow with every peer, and one pair
/// failed.
pub(crate) fn probe_matrix() -> ProbeMatrix {
    let end = |node: usize, rail: usize| PairEnd {
        node: SanitizedText::new(&format!("gpu{:03}", node + 1)),
        device: SanitizedText::new(&format!("mlx5_{rail}")),
        port: "1".into(),
        leaf: Some(SanitizedText::new(&format!("leaf-0{}", node / 4))),
    };
    let rails = (0..2).map(|rail| {
        let mut pairs = Vec::new();
        for from in 0..8 {
            for to in from + 1..8 {
                let slow = rail == 0 && (from == 2 || to == 2);
                let failed = rail == 0 && (from, to) == (0, 6);
                let ratio = if slow { 0.41 } else { 0.97 + ((from + to) % 4) as f64 / 100.0 };
                let ratio = (!failed).then_some(ratio);
                pairs.push(ProbePair {
                    from: end(from, rail),
                    to: end(to, rail),
                    at: gaunt_schema::UnixMs(AT.0 - 240_000),
                    tool: PairTool::Nccl,
                    bytes_per_second: ratio.map(|ratio| ratio * 48e9),
                    ratio,
                    failure: failed.then(|| "the other side did not come".into()),
                });
            }
        }
        let suspect = ProbeSuspect {
            kind: SuspectKind::Port,
            name: "gpu003 mlx5_0/1".into(),
            ratio: 0.41,
            pairs: 7,
        };
        RailMatrix {
            rail: SanitizedText::new(&rail.to_string()),
            within_leaf: Some(48e9),
            across_leaves: Some(47e9),
            pairs,
            suspects: if rail == 0 { vec![suspect] } else { Vec::new() },
        }
    });
    ProbeMatrix { at: AT, free: 1, measuring: 2, ended: [56, 1], rails: rails.collect() }
}

/// Builds three processes on a node, one of them without a known user.
pub(crate) fn process_table() -> AnswerTable {
    let gib = |value: f64| Some(value * f64::from(1 << 30));
    let mut busy = number_cells(&[Some(0.98), Some(0.41), None]);
    if let AnswerCells::Numbers { absent, .. } = &mut busy {
        absent.insert(AbsenceReason::NoPermission, vec![2]);
    }
    build_table(
        Subject::Processes,
        vec![
            ("node", text_cells(&["gpu003"; 3])),
            ("gpu", text_cells(&["0", "5", "5"])),
            ("pid", text_cells(&["40213", "40218", "977"])),
            ("program", text_cells(&["python3", "python3", ""])),
            ("user", text_cells(&["alice", "alice", ""])),
            ("memory", number_cells(&[gib(61.2), gib(20.0), gib(0.4)])),
            ("utilization", busy),
            ("job", text_cells(&["8812", "8812", ""])),
            ("pod", text_cells(&["", "", ""])),
        ],
    )
}

/// Builds five ports of a rail: one is down, one is slower than its siblings and has errors.
pub(crate) fn port_table() -> AnswerTable {
    let gigabits = |value: f64| Some(value * 1e9 / 8.0);
    build_table(
        Subject::Ports,
        vec![
            ("node", text_cells(&["gpu004", "gpu003", "gpu001", "gpu002", "gpu005"])),
            ("device", text_cells(&["mlx5_1"; 5])),
            ("port", text_cells(&["1"; 5])),
            ("leaf", text_cells(&["leaf-00", "leaf-00", "leaf-00", "leaf-00", ""])),
            ("rail", text_cells(&["1"; 5])),
            ("state", text_cells(&["active", "down", "active", "active", "active"])),
            ("load", number_cells(&[Some(0.39), None, Some(0.41), Some(0.4), Some(0.38)])),
            (
                "receive",
                number_cells(&[None, Some(0.0), gigabits(164.0), gigabits(9.6), Some(1.0)]),
            ),
            ("transmit", number_cells(&[gigabits(160.0); 5])),
            (
                "rate",
                number_cells(&[gigabits(200.0), None, gigabits(400.0), gigabits(400.0), None]),
            ),
            ("symbol_errors", number_cells(&[Some(12.0), None, Some(0.0), Some(0.0), Some(0.0)])),
            ("link_downed", number_cells(&[Some(0.0), Some(1.0), Some(0.0), Some(0.0), Some(0.0)])),
            ("finding", text_cells(&["link_errors", "port_down", "", "", ""])),
        ],
    )
}

/// Builds four targets: live, stale, down with its failure, and one of which much is not understood.
pub(crate) fn target_table() -> AnswerTable {
    let age = [Some(0.4), Some(7.0), Some(91.0), Some(0.8)];
    build_table(
        Subject::Targets,
        vec![
            (
                "address",
                text_cells(&["10.0.4.1:9770", "10.0.4.2:9770", "10.0.4.3:9770", "10.0.4.4:9400"]),
            ),
            ("node", text_cells(&["gpu001", "gpu002", "gpu003", "gpu004"])),
            ("state", text_cells(&["live", "stale", "down", "live"])),
            ("age", number_cells(&age)),
            ("duration", number_cells(&[Some(0.002), Some(0.9), Some(1.0), Some(0.03)])),
            ("failure", text_cells(&["", "timeout", "connect", ""])),
            ("dialect", text_cells(&["gaunt", "gaunt", "gaunt", "dcgm"])),
            ("samples", number_cells(&[Some(1_056.0), Some(1_056.0), None, Some(412.0)])),
            ("rejected", number_cells(&[Some(0.0), Some(0.0), None, Some(3.0)])),
            ("unknown_fields", number_cells(&[Some(0.0), Some(0.0), None, Some(6.0)])),
        ],
    )
}

/// Builds two closed findings, the newest first; one of them came back.
pub(crate) fn closed_table() -> AnswerTable {
    build_table(
        Subject::Closed,
        vec![
            ("severity", text_cells(&["critical", "warning"])),
            ("finding", text_cells(&["data_starved", "link_errors"])),
            ("entity", text_cells(&["gpu006", "gpu011 · mlx5_3/1"])),
            ("age", number_cells(&[Some(1_260.0), Some(90.0)])),
            ("closed", number_cells(&[Some(240.0), Some(3_700.0)])),
            ("openings", number_cells(&[Some(1.0), Some(3.0)])),
            (
                "summary",
                text_cells(&[
                    "gpu006 is data-starved: all 8 allocated GPUs wait for input (IO pressure 34 %)",
                    "mlx5_3/1 on gpu011 counts symbol errors: 12/s",
                ]),
            ),
        ],
    )
}
