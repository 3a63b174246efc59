//! `gaunt explain --flight-recorder`: dumps as PyTorch writes them, pickled by its C++ pickler or as JSON.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{collections::HashMap, fs, path::Path, process::Output};

use serde_json::{Value, json};

use crate::{
    acknowledgement_access::fetch_json, api_schema::start_fleet_aggregator,
    node_program::fixture_path, test_process::run_gaunt,
};

/// Writes plain data as PyTorch's C++ pickler does: protocol 2, each text once, pairs as tuples.
#[derive(Default)]
struct TorchPickler {
    bytes: Vec<u8>,
    texts: HashMap<String, u32>,
}

impl TorchPickler {
    fn pickle(value: &Value) -> Vec<u8> {
        let mut pickler = Self { bytes: vec![0x80, 2], ..Self::default() };
        pickler.push_value(value);
        pickler.bytes.push(b'.');
        pickler.bytes
    }

    fn push_value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes.push(b'N'),
            Value::Bool(value) => self.bytes.push(if *value { 0x88 } else { 0x89 }),
            // Dumps have whole numbers only, but for durations, which are not written here.
            Value::Number(number) => self.push_int(number.as_i64().unwrap()),
            Value::String(text) => self.push_text(text),
            // The name of a process group and its description are a tuple.
            Value::Array(items) if items.len() == 2 && items.iter().all(Value::is_string) => {
                for item in items {
                    self.push_value(item);
                }
                self.bytes.push(0x86);
            }
            Value::Array(items) => {
                self.bytes.extend(b"](");
                for item in items {
                    self.push_value(item);
                }
                self.bytes.push(b'e');
            }
            Value::Object(fields) => {
                self.bytes.extend(b"}(");
                for (name, value) in fields {
                    self.push_text(name);
                    self.push_value(value);
                }
                self.bytes.push(b'u');
            }
        }
    }

    fn push_int(&mut self, number: i64) {
        if let Ok(number) = u8::try_from(number) {
            self.bytes.extend([b'K', number]);
        } else if let Ok(number) = u16::try_from(number) {
            self.bytes.push(b'M');
            self.bytes.extend(number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(number.to_le_bytes());
        } else {
            self.bytes.extend([0x8a, 8]);
            self.bytes.extend(number.to_le_bytes());
        }
    }

    fn push_text(&mut self, text: &str) {
        let next = self.texts.len() as u32;
        if let Some(number) = self.texts.get(text) {
            if let Ok(number) = u8::try_from(*number) {
                self.bytes.extend([b'h', number]);
            } else {
                self.bytes.push(b'j');
                self.bytes.extend(number.to_le_bytes());
            }
            return;
        }
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        if let Ok(number) = u8::try_from(next) {
            self.bytes.extend([b'q', number]);
        } else {
            self.bytes.push(b'r');
            self.bytes.extend(next.to_le_bytes());
        }
        self.texts.insert(text.to_owned(), next);
    }
}

/// One collective of the group `0` in the ring of a recorder.
fn collective_entry(record: i64, sequence: i64, name: &str, state: &str) -> Value {
    let time = 1_764_000_000_000_000_000 + sequence * 1_000_000;
    let seen = |is_seen: bool| if is_seen { json!(time) } else { Value::Null };
    json!({
        "frames": [
            {"name": "all_reduce", "filename": "/opt/venv/torch/distributed/distributed_c10d.py", "line": 2696},
            {"name": "train_step", "filename": "/job/train.py", "line": 120},
        ],
        "record_id": record,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "thread_name": "pt_main_thread",
        "thread_id": "139000000000",
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": time,
        "input_sizes": [[4096, 1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4096, 1024]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": seen(state != "scheduled"),
        "time_discovered_completed_ns": seen(state == "completed"),
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": false,
    })
}

/// The dump of a rank whose ring begins at `first` and that completed all collectives up to 41; `waits` says whether it
/// runs number 42.
fn rank_dump(ranks: &str, first: i64, waits: bool) -> Value {
    let completed = (first..=41)
        .map(|sequence| collective_entry(sequence - 1, sequence, "nccl:all_reduce", "completed"));
    let running = waits.then(|| collective_entry(41, 42, "nccl:all_reduce", "started"));
    let last = 41 + i64::from(waits);
    json!({
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {
            "last_enqueued_collective": last,
            "last_started_collective": last,
            "last_completed_collective": 41,
        }},
        "entries": completed.chain(running).collect::<Vec<_>>(),
    })
}

/// Eight dumps; rank 5 did not call collective 42. Odd ranks dump JSON.
fn write_dumps(folder: &Path) {
    for rank in 0..8 {
        let dump = rank_dump("[0, 1, 2, 3, 4, 5, 6, 7]", 20, rank != 5);
        if rank % 2 == 0 || rank == 5 {
            let path = folder.join(format!("nccl_trace_rank_{rank}"));
            fs::write(path, TorchPickler::pickle(&dump)).unwrap();
        } else {
            let path = folder.join(format!("nccl_trace_rank_{rank}.json"));
            fs::write(path, dump.to_string()).unwrap();
        }
    }
}

/// Exit code, output and errors of `gaunt explain --flight-recorder` with these arguments.
fn explain_folder(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let folder = folder.to_str().unwrap();
    let args = [&["explain", "--flight-recorder", folder, "--log", "off"], args].concat();
    let Output { status, stdout, stderr } = run_gaunt(&args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn rank_missing_from_a_collective_is_named_from_pickles_and_json() {
    let folder = tempfile::tempdir().unwrap();
    write_dumps(folder.path());
    fs::write(folder.path().join("notes.txt"), "not a dump").unwrap();
    let (code, page, error) = explain_folder(folder.path(), &[]);
    let expected = format!(
        "{}: 8 dumps, flight recorder 2.10, 1 process group compared\n\
         \n\
         rank 5 did not call collective 42 (nccl:all_reduce) of group 0; 7 ranks wait.\n  \
         GPU        unknown: name --aggregator URL and --job JOB\n  \
         last call  nccl:all_reduce 41 of group 0, completed, /job/train.py:120 train_step\n  \
         next       Find what its process does (py-spy dump --pid PID), and whether its node has a finding.\n\
         \n\
         group 0 (default_pg), 8 ranks: collective 42 nccl:all_reduce\n  \
         waiting    0-4, 6-7\n  \
         behind     5\n",
        folder.path().display()
    );
    assert_eq!((code, page), (Some(0), expected), "{error}");
    let (_, json, _) = explain_folder(folder.path(), &["--format", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    let rank = &report["lagging"][0];
    assert_eq!((&rank["rank"], &rank["reason"]), (&json!(5), &json!("not_called")), "{json}");
    assert_eq!((&rank["sequence"], &rank["waits_elsewhere"]), (&json!(42), &json!(false)));
    assert_eq!(report["stuck_groups"][0]["waiting"], json!([0, 1, 2, 3, 4, 6, 7]));
}

/// The first two of two thousand collectives in dumps of PyTorch 2.11.0 with NCCL 2.28.9, as both its writers wrote them. In
/// its JSON, numbers of a group are texts, and a time that is not known is 0.
#[test]
fn dumps_of_pytorch_itself_are_read() {
    for (name, path) in [
        ("nccl_trace_rank_0", "flight_recorder/pytorch-2.11.0.pickle"),
        ("nccl_trace_rank_0.json", "flight_recorder/pytorch-2.11.0.json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixture_path(path), folder.path().join(name)).unwrap();
        let (code, page, error) = explain_folder(folder.path(), &[]);
        let expected = format!(
            "{}: 1 dump, flight recorder 2.10, 0 process groups compared\n\n\
             No rank waits: every collective is completed, or its group has no other dump.\n",
            folder.path().display()
        );
        assert_eq!((code, page), (Some(0), expected), "{error}");
    }
}

#[test]
fn unreadable_dump_is_named_and_the_others_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    write_dumps(folder.path());
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let whole = fs::read(folder.path().join("nccl_trace_rank_2")).unwrap();
    write("nccl_trace_rank_2", &whole[..whole.len() / 2]);
    write("nccl_trace_rank_4", b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.");
    write("nccl_trace_rank_3.json", b"{\"version\": \"2.10\",\n");
    write("nccl_trace_rank_6", &TorchPickler::pickle(&json!({"version": "1.5"})));
    write("job-12", b"#!/bin/sh\n");
    let (code, page, _) = explain_folder(folder.path(), &[]);
    assert_eq!(code, Some(3), "{page}");
    assert!(page.contains("4 dumps, ") && page.contains("\nrank 5 did not call "), "{page}");
    assert!(page.contains("  no dump    2-4, 6\n"), "{page}");
    for fault in [
        format!(
            "nccl_trace_rank_2: not a readable pickle: it ends after {} bytes",
            whole.len() / 2
        ),
        "nccl_trace_rank_4: not a readable pickle: byte 2 names a Python function".to_owned(),
        "nccl_trace_rank_3.json: not readable JSON (line 2, column 0)".to_owned(),
        "nccl_trace_rank_6: version \"1.5\" of the flight recorder; gaunt reads versions 2.x"
            .to_owned(),
        "job-12: not a dump of PyTorch's flight recorder: it has no version".to_owned(),
    ] {
        assert!(page.contains(&fault), "{fault} in\n{page}");
    }
}

#[test]
fn folder_without_dumps_is_an_error_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = explain_folder(folder.path(), &[]);
    let expected =
        "has no readable dump of PyTorch's flight recorder; name a folder with the files";
    assert!(code == Some(3) && error.contains(expected), "{error}");
    let (code, _, error) = explain_folder(&folder.path().join("absent"), &[]);
    let expected = "absent; check its path";
    assert!(code == Some(3) && error.contains(expected), "{error}");
}

#[test]
fn aggregator_names_the_gpu_of_the_rank() {
    let (_sim, _running, address) = start_fleet_aggregator(4);
    let gpus = fetch_json(&address, "gpus?filter=rank=5%20columns%20node,gpu,job");
    let text = |column: usize| {
        let column = &gpus["columns"][column]["cells"]["texts"];
        let code = column["codes"][0].as_u64().unwrap() as usize;
        column["words"][code].as_str().unwrap().to_owned()
    };
    let (node, gpu, job) = (text(0), text(1), text(2));
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("host-a");
    fs::create_dir(&host).unwrap();
    write_dumps(&host);
    let args = ["--aggregator", &address, "--job", &job];
    let (code, page, error) = explain_folder(folder.path(), &args);
    assert_eq!(code, Some(0), "{page}{error}");
    let expected = format!("\n  GPU        {node}/{gpu} (job {job})\n  host       host-a\n");
    assert!(page.contains(&expected), "{expected} in {page}");
    // Without it, the rank is still named.
    let args = ["--aggregator", "127.0.0.1:1"];
    let (code, page, _) = explain_folder(folder.path(), &args);
    assert!(code == Some(3) && page.contains("\nrank 5 did not call "), "{page}");
    assert!(page.contains("not read: GPUs of the ranks are unknown: "), "{page}");
}
