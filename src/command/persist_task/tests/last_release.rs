//! What the last release wrote is read: its state, what it sends to a peer, a page and frames of gaunt-node and its answers, as
//! files of version 0.1.0.

use std::path::{Path, PathBuf};

use gaunt_schema::{
    Device, UnixMs,
    catalogue::gpu,
    frame::{FrameDecodeState, FrameDecoder, LAYOUT_BYTES},
    text::{PageLimits, decode_page},
};

use super::*;
use gaunt_api::{Answer, Question};
use gaunt_engine::{EngineOptions, PeerSnapshot};

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

/// Some seconds after the state was saved and sent.
fn after_the_end() -> UnixMs {
    let text = std::fs::read_to_string(fixture("api/findings.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    UnixMs(json["at"].as_i64().unwrap() + 5_000)
}

/// Fails unless the engine has the port that is down, as it was acknowledged.
fn assert_acknowledged(engine: &mut Engine) {
    engine.run_tick(after_the_end());
    let Answer::Findings(list) = engine.answer_question(&Question::Findings) else {
        panic!("no findings");
    };
    let kept = list.findings.iter().find(|finding| finding.kind == FindingKind::PortDown).unwrap();
    assert_eq!(kept.id, "port_down/gpu002/mlx5_3/1");
    let acknowledged = kept.acknowledged.as_ref().unwrap();
    assert_eq!((&*acknowledged.by, &*acknowledged.note), ("alice", "cable ordered"));
}

#[test]
fn state_of_the_last_release_keeps_findings_and_acknowledgements() {
    let folder = copy_state();
    let mut store = StateStore::open_folder(folder.path()).unwrap();
    let state = load_from_store(&mut store, after_the_end()).unwrap();
    // That of gpu901, whose node was away for some seconds.
    let closed: Vec<_> = state.finding_journal().days().map(|(day, _)| day).collect();
    assert_eq!((state.finding_journal().len(), closed), (1, vec![day_number(after_the_end())]));
    let mut engine = Engine::from_persisted(EngineOptions::default(), state);
    assert_acknowledged(&mut engine);
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

/// It has no history.
#[test]
fn state_that_a_peer_of_the_last_release_sends_is_taken_over() {
    let mut sent =
        PeerSnapshot::unpack(&std::fs::read(fixture("peer_state.zst")).unwrap()).unwrap();
    assert_eq!(sent.take_past().series(), 0);
    let (state, takeover) = PersistedState::default().join_peer(sent, after_the_end()).unwrap();
    assert_eq!((takeover.open_findings, takeover.actions, takeover.baselines), (1, 1, true));
    assert_acknowledged(&mut Engine::from_peer(EngineOptions::default(), state));
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

/// The first answer of gaunt-node with the fake driver's `full.toml`, with layout, identity and readings; then what changed until
/// the next tick.
#[test]
fn frames_of_the_last_release_are_decoded() {
    let decoder = FrameDecoder::new(LAYOUT_BYTES);
    let mut state = FrameDecodeState::default();
    let mut times = Vec::new();
    for name in ["page.frame", "difference.frame"] {
        let body = std::fs::read(fixture(name)).unwrap();
        let page = decoder.decode_frame(&mut state, &body, &PageLimits::default()).unwrap();
        assert_eq!(page.report.node.as_deref(), Some("gpu901"), "{name}");
        for (metric, expected) in [(gpu::POWER, 300.0), (gpu::PRESENT, 1.0)] {
            let reading = page.report.find_reading(&Device::new_gpu(1), metric);
            assert_eq!(reading.and_then(gaunt_schema::Reading::value), Some(expected), "{name}");
        }
        times.push(page.report.node_time.unwrap());
    }
    assert!(times[0] < times[1], "{times:?}");
    assert_eq!(decoder.decoder_stats().differences, 1);
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
