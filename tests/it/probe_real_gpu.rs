//! gaunt-probe on a real GPU: kernels verified with virtual ranks, copies compared with the driver's, and the cost of a probe.
//!
//! `cargo test --test it probe_real_gpu -- --ignored --nocapture` on a machine with an idle NVIDIA GPU prints a table.
//! One GPU cannot test links, peer access, or anything between nodes.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    binaries::program_path,
    probe_program::{ProbeOutput, parse_output},
    test_process::RunToEnd,
};

const COLLECTIVES: [&str; 6] =
    ["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send-recv"];

/// Minimum bandwidth of our copy relative to the driver's.
const COPY_RATIO: f64 = 0.9;

fn probe_command(arguments: &str) -> Command {
    let mut command = Command::new(program_path("gaunt-probe"));
    command.args(arguments.split(' ')).args(["--gpus", "0", "--json"]);
    command
}

fn run(arguments: &str) -> ProbeOutput {
    let output = parse_output(&probe_command(arguments).run_to_end());
    assert_eq!(output.code, 0, "gaunt-probe {arguments}: {}", output.ending_message());
    output
}

fn as_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// GB/s of one row.
fn measured_rate(output: &ProbeOutput, what: &str, tool: &str) -> f64 {
    let measurements = output.answer["measured"].as_array().unwrap();
    let measurement = measurements
        .iter()
        .find(|measurement| measurement["collective"] == what && measurement["tool"] == tool);
    as_number(
        &measurement.unwrap_or_else(|| panic!("no {what} by {tool}: {measurements:?}"))["algbw"],
    ) / 1e9
}

/// A continuous load: large sums on the same GPU.
fn start_load() -> Child {
    let mut command = probe_command(
        "all-reduce --ranks 2 --bytes 256MiB --runs 400 --sms 1000 --even-if-busy --busy 60s --within 60s \
         --traffic 1024GiB",
    );
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// The median of a load's runs, in milliseconds.
fn load_millis(load: Child) -> f64 {
    let output = parse_output(&load.wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{}", output.ending_message());
    as_number(&output.answer["measured"][0]["seconds"][1]) * 1e3
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_are_right_and_copies_fast_and_a_probe_costs_little() {
    let device = Command::new("nvidia-smi")
        .args(["--query-gpu=name,driver_version,timestamp", "--format=csv,noheader", "-i", "0"])
        .output()
        .expect("nvidia-smi is part of the driver");
    println!("device        {}", String::from_utf8_lossy(&device.stdout).trim());

    let mut verified = 0;
    for collective in COLLECTIVES {
        for ranks in [2, 3, 8, 16] {
            for element in ["f32", "bf16"] {
                for bytes in ["4", "1000003", "64MiB"] {
                    run(&format!(
                        "{collective} --ranks {ranks} --type {element} --bytes {bytes} --runs 2 --memory 8GiB \
                         --traffic 1024GiB --within 10s"
                    ));
                    verified += 1;
                }
            }
        }
    }
    println!(
        "verified      {verified} collectives of 2 to 16 virtual ranks, every element of every run"
    );

    for bytes in ["64MiB", "1GiB"] {
        let output = run(&format!("matrix --bytes {bytes} --sms 1000 --memory 4GiB --within 60s"));
        let (ours, driver) =
            (measured_rate(&output, "copy", "gaunt"), measured_rate(&output, "copy", "driver"));
        println!(
            "copy {bytes:8} {ours:.0} GB/s, the driver's {driver:.0}: {:.0} %",
            100.0 * ours / driver
        );
        assert!(ours >= COPY_RATIO * driver, "{ours}, the driver {driver}");
        let (to_gpu, from_gpu) = (
            measured_rate(&output, "to_gpu", "driver"),
            measured_rate(&output, "from_gpu", "driver"),
        );
        println!("host {bytes:8} {to_gpu:.1} GB/s to the GPU, {from_gpu:.1} from it, pinned");
    }

    let output = run("all-reduce --ranks 8 --bytes 64MiB --memory 2GiB");
    let cost = &output.answer["cost"];
    let (total, contexts) = (as_number(&cost["seconds"]), as_number(&cost["contexts_seconds"]));
    println!(
        "start         {total:.2} s to the result, {:.3} s of it after the context",
        total - contexts
    );
    println!("busy          {:.1} ms of GPU time", as_number(&cost["busy_seconds"]) * 1e3);

    let output = run("all-reduce --ranks 1 --bytes 64MiB --nccl");
    for measurement in output.answer["measured"].as_array().unwrap() {
        println!(
            "comparison    {} {:.0} GB/s on one GPU",
            measurement["tool"],
            as_number(&measurement["algbw"]) / 1e9
        );
    }
    println!("notes         {}", output.answer["notes"]);

    let before = load_millis(start_load());
    let during = start_load();
    let probes = thread::spawn(|| {
        for _ in 0..5 {
            run("all-reduce --ranks 2 --bytes 64MiB --even-if-busy --within 10s");
        }
    });
    let during = load_millis(during);
    probes.join().unwrap();
    let after = load_millis(start_load());
    println!(
        "load          {before:.3} ms per run before, {during:.3} during five probes, {after:.3} after"
    );

    let doctor = Command::new(program_path("gaunt-probe")).arg("doctor").run_to_end();
    println!("doctor\n{}", String::from_utf8_lossy(&doctor.stdout));
}
