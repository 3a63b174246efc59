//! Tables, a job and a fabric for tests of screens.

use std::collections::BTreeMap;

use gaunt_schema::{Absent, FindingKind, GpuState, Safe};

use super::{AT, port_down};
use crate::answer::{
    Cells, Column, Fabric, FabricCells, JobDetail, JobPast, StateCount, StateTime, Strip, Subject,
    Table,
};

/// A table of columns, each of texts or of numbers.
pub(in crate::console) fn table(subject: Subject, columns: Vec<(&str, Cells)>) -> Table {
    let rows = columns.first().map_or(0, |(_, cells)| match cells {
        Cells::Numbers { values, .. } => values.len(),
        Cells::Texts { codes, .. } => codes.len(),
    }) as u32;
    let column = |(name, cells): (&str, Cells)| {
        let name = name.to_owned();
        Column { name, metric: None, unit: None, cells }
    };
    let columns = columns.into_iter().map(column).collect();
    Table { at: AT, subject, total: rows, matched: rows, offset: 0, rows, columns }
}

/// Texts, an empty one for none.
pub(in crate::console) fn texts(texts: &[&str]) -> Cells {
    let codes = texts.iter().enumerate();
    let codes = codes.map(|(at, text)| (!text.is_empty()).then_some(at as u32)).collect();
    Cells::Texts { words: texts.iter().map(|text| Safe::new(text)).collect(), codes }
}

pub(in crate::console) fn numbers(values: &[Option<f64>]) -> Cells {
    Cells::Numbers { values: values.to_vec(), absent: BTreeMap::new() }
}

/// The GPUs of two nodes, with every column of the list.
pub(in crate::console) fn gpu_table() -> Table {
    let rows = 0..16_usize;
    let node: Vec<String> = rows.clone().map(|row| format!("gpu{:03}", 1 + row / 8)).collect();
    let node: Vec<&str> = node.iter().map(String::as_str).collect();
    let gpu = ["0", "1", "2", "3", "4", "5", "6", "7"].repeat(2);
    let state: Vec<&str> =
        rows.clone().map(|row| if row == 5 { "throttled" } else { "waiting" }).collect();
    let of = |value: &dyn Fn(usize) -> Option<f64>| {
        numbers(&rows.clone().map(value).collect::<Vec<_>>())
    };
    let finding: Vec<&str> =
        rows.clone().map(|row| if row == 5 { "throttled" } else { "" }).collect();
    let mut active = of(&|_| None);
    if let Cells::Numbers { absent, .. } = &mut active {
        absent.insert(Absent::NoPermission, (0..16).collect());
    }
    table(
        Subject::Gpus,
        vec![
            ("node", texts(&node)),
            ("gpu", texts(&gpu)),
            ("state", texts(&state)),
            ("job", texts(&["8812"; 16])),
            ("utilization", of(&|_| Some(1.0))),
            ("power", of(&|row| Some(180.0 + row as f64 * 30.0))),
            ("temperature", of(&|row| (row != 3).then_some(52.0))),
            ("memory_used", of(&|_| Some(61.2 * f64::from(1 << 30)))),
            ("finding", texts(&finding)),
            ("sm_active", active),
            ("tensor_active", of(&|_| Some(0.41))),
            ("sm_clock", of(&|_| Some(1.98e9))),
            ("user", texts(&["alice"; 16])),
            ("model", texts(&["NVIDIA H100 80GB HBM3"; 16])),
        ],
    )
}

/// Three jobs of two users, one of whom nobody names.
pub(in crate::console) fn job_table() -> Table {
    table(
        Subject::Jobs,
        vec![
            ("job", texts(&["8812", "8840", "9001"])),
            ("job_name", texts(&["llama-pt", "vit", ""])),
            ("user", texts(&["alice", "alice", ""])),
            ("account", texts(&["llm", "vision", ""])),
            ("gpus", numbers(&[Some(128.0), Some(64.0), Some(8.0)])),
            ("lost", numbers(&[Some(60.0), Some(0.0), Some(0.0)])),
            ("useful", numbers(&[Some(0.53), Some(1.0), None])),
            ("nodes", numbers(&[Some(16.0), Some(8.0), Some(1.0)])),
            ("gpu_power", numbers(&[Some(50_000.0), Some(40_000.0), None])),
            ("finding", texts(&["port_down", "", ""])),
            ("runtime", numbers(&[Some(273_600.0), Some(900.0), None])),
        ],
    )
}

/// A job of which one GPU does not wait.
pub(in crate::console) fn job() -> JobDetail {
    let strip = |gpu: u32, states: String, odd_ratio: f64| Strip {
        node: "gpu003".into(),
        gpu: Safe::new(&gpu.to_string()),
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
        gpus: gpu_table(),
        findings: vec![port_down()],
        past: JobPast {
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

/// Four leaves by four rails, one of them paused, one with a port down.
pub(in crate::console) fn fabric() -> Fabric {
    let names = |prefix: &str| (0..4).map(|n| Safe::new(&format!("{prefix}{n}"))).collect();
    let mut cells = FabricCells::default();
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
    Fabric { at: AT, total: 128, matched: 128, leaves: names("leaf-0"), rails: names(""), cells }
}
