//! Every collective of gaunt-probe, for 1 to 16 ranks and odd sizes, with the fake driver's work in random order.

use crate::probe_program::ProbeFixture;

const COLLECTIVES: [&str; 6] =
    ["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv"];

/// Runs a collective with one GPU for each rank, in random order.
fn check_collective(collective: &str, gpus: usize, flags: &[&str]) {
    let probe =
        ProbeFixture::with_gpus(gpus, "", &format!("shuffle = {}", 17 * gpus + collective.len()));
    let mut arguments = vec![collective, "--runs", "2", "--warm-up", "0"];
    arguments.extend(flags);
    let output = probe.run(&arguments);
    assert_eq!(output.code, 0, "{collective} of {gpus}, {flags:?}: {}", output.ending_message());
    let measurement = &output.answer["measured"][0];
    assert_eq!(measurement["wrong"], 0, "{collective} of {gpus}");
    assert_eq!(measurement["busbw"].is_null(), measurement["ranks"] == 1, "one rank uses no link");
}

#[test]
fn collectives_are_right_for_1_to_16_gpus() {
    for collective in COLLECTIVES {
        for gpus in 1..=16 {
            check_collective(collective, gpus, &["--bytes", "20004", "--channels", "2"]);
        }
    }
}

#[test]
fn collectives_are_right_for_odd_sizes_of_both_elements() {
    for collective in COLLECTIVES {
        for bytes in ["4", "36", "4092", "65541", "100003"] {
            for element in ["f32", "bf16"] {
                check_collective(collective, 3, &["--bytes", bytes, "--type", element]);
            }
        }
    }
}

#[test]
fn virtual_ranks_on_one_gpu_give_right_results() {
    for collective in COLLECTIVES {
        for ranks in ["2", "5", "8", "16"] {
            check_collective(collective, 1, &["--ranks", ranks, "--bytes", "30000"]);
        }
        check_collective(collective, 3, &["--ranks", "7", "--bytes", "30001", "--type", "bf16"]);
    }
}

#[test]
fn nccl_is_measured_with_the_same_check() {
    for collective in COLLECTIVES {
        for element in ["f32", "bf16"] {
            let probe = ProbeFixture::with_gpus(4, "", "shuffle = 3");
            let arguments = [collective, "--nccl", "--bytes", "65536", "--type", element];
            let output = probe.run(&arguments);
            assert_eq!(output.code, 0, "{collective}: {}", output.ending_message());
            let measured = output.answer["measured"].as_array().expect("a list");
            let tools: Vec<_> = measured.iter().map(|one| one["tool"].as_str()).collect();
            assert_eq!(tools, [Some("gaunt"), Some("nccl")], "{collective}");
            assert!(measured.iter().all(|one| one["wrong"] == 0 && one["runs"] == 5));
        }
    }
    let probe = ProbeFixture::with_gpus(3, "", "");
    let output = probe.run(&["all-reduce", "--nccl", "--bytes", "100004"]);
    assert_eq!(output.answer["measured"].as_array().map(Vec::len), Some(1));
    let notes = output.answer["notes"].to_string();
    assert!(notes.contains("it needs equal chunks"), "{notes}");
}
