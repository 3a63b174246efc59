//! What the last release wrote is read: its state, a page and a frame of gaunt-node and its answers, as files of version 0.1.0.

use std::path::{Path, PathBuf};

use gaunt_schema::{
    Device, UnixMs,
    catalogue::gpu,
    frame::{FrameDecodeState, FrameDecoder, LAYOUT_BYTES},
    text::{PageLimits, decode_page},
};

use super::*;
use gaunt_api::{Answer, Question};
use gaunt_engine::EngineOptions;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/release-0.1.0").join(name)
}

/// A copy of the folder, because opening the state locks and may rename files in it.
fn copy_state() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("state")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn state_of_the_last_release_keeps_findings_and_acknowledgements() {
    let folder = copy_state();
    let (store, state) = load_state(folder.path()).unwrap();
    let mut engine = Engine::from_persisted(EngineOptions::default(), state);
    // Some seconds after it was saved.
    let since: UnixMs = {
        let text = std::fs::read_to_string(fixture("api/findings.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        UnixMs(json["at"].as_i64().unwrap() + 5_000)
    };
    engine.run_tick(since);
    let Answer::Findings(list) = engine.answer_question(&Question::Findings) else {
        panic!("no findings");
    };
    let kept = list.findings.iter().find(|finding| finding.kind == FindingKind::PortDown).unwrap();
    assert_eq!(kept.id, "port_down/gpu002/mlx5_3/1");
    let acknowledged = kept.acknowledged.as_ref().unwrap();
    assert_eq!((&*acknowledged.by, &*acknowledged.note), ("alice", "cable ordered"));
    // Nothing was set aside as unreadable, and the same version writes it again.
    let state = engine.persisted_state().unwrap();
    let outcome = PersistWriter::new(store).write_changes(&state, true);
    assert_eq!((outcome.findings, outcome.other_parts), (Ok(()), Ok(())));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names.iter().all(|name| name == "lock" || name.to_string_lossy().ends_with(".gaunt")),
        "{names:?}"
    );
}

#[test]
fn page_of_the_last_release_is_decoded() {
    let body = std::fs::read(fixture("page.prom")).unwrap();
    let page = decode_page(&body, &PageLimits::default()).unwrap();
    assert_eq!(page.report.node.as_deref(), Some("gpu001"));
    assert!(page.report.samples.len() > 1_000, "{}", page.report.samples.len());
    let power = page.report.find_reading(&Device::new_gpu(0), gpu::POWER);
    assert!(power.and_then(gaunt_schema::Reading::value).is_some());
}

/// The first answer of gaunt-node with the fake driver's `full.toml`: layout, identity and readings.
#[test]
fn frame_of_the_last_release_is_decoded() {
    let body = std::fs::read(fixture("page.frame")).unwrap();
    let decoder = FrameDecoder::new(LAYOUT_BYTES);
    let mut state = FrameDecodeState::default();
    let page = decoder.decode_frame(&mut state, &body, &PageLimits::default()).unwrap();
    assert_eq!(page.report.node.as_deref(), Some("gpu001"));
    for (metric, expected) in [(gpu::POWER, 300.0), (gpu::PRESENT, 1.0)] {
        let reading = page.report.find_reading(&Device::new_gpu(1), metric);
        assert_eq!(reading.and_then(gaunt_schema::Reading::value), Some(expected));
    }
    // The next answer of the same node may be a difference to this one.
    assert!(decoder.client_state(&mut state).tick.is_some());
}

#[test]
fn answers_of_the_last_release_are_decoded() {
    let mut decoded = 0;
    for entry in std::fs::read_dir(fixture("api")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let asked = match name.as_str() {
            "findings_port_down_gpu002_mlx5_3_1" => "findings/port_down/gpu002/mlx5_3/1",
            "history_metric_power" => "history",
            other => other,
        };
        let parameters: &[(String, String)] =
            if asked == "history" { &[("metric".to_owned(), "power".to_owned())] } else { &[] };
        let question = Question::parse_path(asked, parameters).unwrap();
        let json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let answer = Answer::from_json(&question, &json);
        assert!(answer.is_ok(), "{name}: {:?}", answer.err());
        decoded += 1;
    }
    assert_eq!(decoded, 16);
}
