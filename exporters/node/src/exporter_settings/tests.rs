//! Tests of the settings file and of what the command line overrides.

use std::{collections::BTreeSet, fs};

use clap::Parser;

use super::*;
use crate::setting_values::parse_period;

/// The plan of a file with this text, and these arguments.
fn plan_from_file(text: &str, arguments: &[&str]) -> Result<ExporterPlan, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    fs::write(&path, text).unwrap();
    let config = ["gaunt-node", "--config", path.to_str().unwrap()];
    let arguments = NodeArguments::parse_from(config.iter().chain(arguments));
    let folder = format!("{}/", folder.path().display());
    build_plan(&arguments).map_err(|error| error.to_string().replace(&folder, ""))
}

#[test]
fn periods_have_units_and_bounds() {
    assert_eq!(parse_period("1s"), Ok(Duration::from_secs(1)));
    assert_eq!(parse_period("500ms"), Ok(Duration::from_millis(500)));
    for text in ["1", "s", "0s", "-1s", "99ms", "61s", "1.5", "99999999999999999999s"] {
        assert!(parse_period(text).is_err(), "{text}");
    }
}

#[test]
fn empty_settings_file_gives_defaults() {
    let plan = plan_from_file("", &[]).unwrap();
    assert_eq!(plan.sampler, SamplerOptions::default());
    assert_eq!(plan.listen, LISTEN);
    assert!(plan.compat.dcgm.is_none() && !plan.compat.node);
}

#[test]
fn sample_file_lists_every_setting_with_its_default() {
    let sample = include_str!("../../../../config/gaunt-node.toml");
    assert_eq!(plan_from_file(sample, &[]), plan_from_file("", &[]));
    // Settings without a default, or specific to a machine, are in the sample as comments.
    let settings: String = sample
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .filter(|line| !line.starts_with("library"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let plan = plan_from_file(&settings, &[]).unwrap();
    assert_eq!(plan.sampler.node_name.as_deref(), Some("gpu-0417"));
    for setting in [
        "compat",
        "names",
        "exclude",
        "rails",
        "web_config",
        "disable",
        "collector_deadline",
        "call_deadline",
        "init_deadline",
        "library",
        "every",
        "state",
        "program",
        "arguments",
        "socket",
        "enabled",
        "address",
    ] {
        assert!(sample.contains(&format!("{setting} = ")), "{setting} is not in the sample");
    }
}

#[test]
fn paths_of_the_file_are_relative_to_its_folder() {
    let text = "web_config = \"web/node.yml\"\ntextfiles = \"../text\"\ninspector_logs = \"logs\"\nsys_root = \".\"\n\
                proc_root = \"/proc\"\n[nvml]\nlibrary = \"lib/nvml.so\"\nkernel_log = \"kmsg\"\n[kubelet]\nsocket = \"k.sock\"\n\
                [probe]\nevery = \"60s\"\nprogram = \"./probe\"\nstate = \"state\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    fs::write(&path, text).unwrap();
    let config = ["gaunt-node", "--config", path.to_str().unwrap()];
    let plan = build_plan(&NodeArguments::parse_from(config)).unwrap();
    let beside = |name: &str| folder.path().join(name);
    assert_eq!(plan.web_config, Some(beside("web/node.yml")));
    assert_eq!(plan.sampler.textfiles, Some(beside("../text")));
    assert_eq!(plan.sampler.inspector_logs, Some(beside("logs")));
    assert_eq!(plan.sampler.sys_root, beside("."));
    assert_eq!(plan.sampler.proc_root, Path::new("/proc"));
    assert_eq!(plan.sampler.nvml_library, Some(beside("lib/nvml.so")));
    assert_eq!(plan.sampler.kernel_log, Some(beside("kmsg")));
    assert_eq!(plan.sampler.kubelet, beside("k.sock"));
    let probe = plan.sampler.probe.unwrap();
    assert_eq!((probe.program, probe.folder), (beside("./probe"), beside("state")));
    // Those of the command line are relative to the working directory, as in every program.
    let arguments = config.into_iter().chain(["--web-config", "web.yml", "--textfiles", "text"]);
    let plan = build_plan(&NodeArguments::parse_from(arguments)).unwrap();
    assert_eq!(plan.web_config.as_deref(), Some(Path::new("web.yml")));
    assert_eq!(plan.sampler.textfiles.as_deref(), Some(Path::new("text")));
}

#[test]
fn names_without_folder_are_searched_for_and_empty_paths_are_not_set() {
    let text = "web_config = \"\"\nsys_root = \"\"\n[nvml]\nlibrary = \"libnvidia-ml.so.1\"\n\
                [probe]\nevery = \"60s\"\nprogram = \"gaunt-probe\"\nstate = \"\"\n";
    let plan = plan_from_file(text, &[]).unwrap();
    assert_eq!(plan.web_config, None);
    assert_eq!(plan.sampler.sys_root, SamplerOptions::default().sys_root);
    assert_eq!(plan.sampler.nvml_library.as_deref(), Some(Path::new("libnvidia-ml.so.1")));
    assert_eq!(
        plan.sampler.probe,
        Some(ProbeSchedule { every: Duration::from_mins(1), ..ProbeSchedule::default() })
    );
}

#[test]
fn command_line_takes_precedence_over_file() {
    let text = "listen = \"127.0.0.1:1\"\nperiod = \"2s\"\ncompat = [\"dcgm\"]\nnode = \"a\"\n\
                [nvml]\ncall_deadline = \"50ms\"\n";
    let plan = plan_from_file(text, &["--listen", "127.0.0.1:2", "--compat", "dcgm,node"]).unwrap();
    assert_eq!(plan.listen.port(), 2);
    assert!(plan.compat.dcgm == Some(DcgmNames::Before4_9) && plan.compat.node);
    assert_eq!(plan.sampler.period, Duration::from_secs(2));
    assert_eq!(plan.sampler.call_deadline, Duration::from_millis(50));
    assert_eq!(plan.sampler.node_name.as_deref(), Some("a"));
}

#[test]
fn compat_has_the_names_of_one_dcgm_version() {
    for (name, names) in [
        ("dcgm", DcgmNames::Before4_9),
        ("dcgm=4.8", DcgmNames::Before4_9),
        ("dcgm=4.9", DcgmNames::Since4_9),
    ] {
        let text = format!("compat = [\"{name}\"]\n");
        assert_eq!(plan_from_file(&text, &[]).unwrap().compat.dcgm, Some(names), "{name}");
        assert_eq!(plan_from_file("", &["--compat", name]).unwrap().compat.dcgm, Some(names));
    }
    let error = plan_from_file("", &["--compat", "dcgm=4.8,dcgm=4.9"]).unwrap_err();
    assert!(error.ends_with("keep one of dcgm=4.8 and dcgm=4.9"), "{error}");
}

#[test]
fn command_line_disable_list_replaces_that_of_the_file() {
    let text = "disable = [\"ports\", \"kernel_log\", \"xid\"]\n";
    let plan = plan_from_file(text, &[]).unwrap();
    let sources = [ReadingSource::Ports, ReadingSource::KernelLog, ReadingSource::Xid];
    assert_eq!(plan.sampler.without, sources.into());
    assert!(!plan.compat.xid);
    let plan = plan_from_file(text, &["--disable", "gpm,cpu"]).unwrap();
    assert_eq!(plan.sampler.without, [ReadingSource::Gpm, ReadingSource::Cpu].into());
    assert!(plan.compat.xid);
}

#[test]
fn former_names_of_disable_and_fast_sampling_are_accepted() {
    let expected = BTreeSet::from([ReadingSource::FastSampling, ReadingSource::Cpu]);
    for name in ["fast-sampling", "glances"] {
        for key in ["disable", "without"] {
            let text = format!("{key} = [\"cpu\", \"{name}\"]\n");
            let plan = plan_from_file(&text, &[]).unwrap();
            assert_eq!(plan.sampler.without, expected, "{key} {name}");
            let (flag, names) = (format!("--{key}"), format!("cpu,{name}"));
            let plan = plan_from_file("", &[flag.as_str(), names.as_str()]).unwrap();
            assert_eq!(plan.sampler.without, expected, "--{key} {name}");
        }
    }
}

#[test]
fn settings_error_names_its_line() {
    for (text, message) in [
        ("\nperod = \"1s\"\n", "node.toml:2: unknown field \"perod\"; known: "),
        (
            "period = \"5\"\n",
            "node.toml:1: the period \"5\": write a duration with its unit: 1s, 500ms",
        ),
        ("compat = [\"dgcm\"]\n", "node.toml:1: compat: \"dgcm\" is invalid; known: "),
        ("[node]\nfoo = 1\n", "node.toml:1: node: an object is invalid"),
        ("[nvml]\ncall_deadline = \"9s\"\ninit_deadline = \"1ms\"\n", "node.toml:3: "),
        ("listen = \"here\"\n", "node.toml:1: listen: invalid socket address"),
        ("listen\n", "node.toml:1: "),
        (
            "\ndisable = [\"cpu\", \"prots\"]\n",
            "node.toml:2: disable: unknown collector \"prots\"; must be one of cpu, memory, ",
        ),
        ("\nsys_root = \"/nowhere\"\n", "node.toml:2: sys_root: /nowhere is not a folder; correct"),
    ] {
        let error = plan_from_file(text, &[]).unwrap_err();
        assert!(error.starts_with(message), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn all_errors_of_the_settings_are_named_in_the_order_of_their_lines() {
    let text = "perod = \"1s\"\nproc_root = \"/nowhere\"\nlisten = \"here\"\n\
                compat = [\"dcgm=4.8\", \"dcgm=4.9\"]\n[nvml]\ncall_deadline = \"1ms\"\nlibary = \"x\"\n\
                [ras]\nenabled = 1\n";
    let errors = plan_from_file(text, &["--sys-root", "/nowhere/sys"]).unwrap_err();
    let starts = [
        "--sys-root: /nowhere/sys is not a folder",
        "node.toml:1: unknown field \"perod\"",
        "node.toml:2: proc_root: /nowhere is not a folder",
        "node.toml:3: listen: ",
        "node.toml:4: compat has dcgm-exporter's names",
        "node.toml:6: call_deadline: ",
        "node.toml:7: unknown field \"libary\"",
        "node.toml:9: enabled: 1 is invalid",
    ];
    assert_eq!(errors.lines().count(), starts.len(), "{errors}");
    for (error, start) in errors.lines().zip(starts) {
        assert!(error.starts_with(start), "{error}");
    }
    let error = plan_from_file("listen\nperiod = \n", &[]).unwrap_err();
    assert!(error.starts_with("node.toml:1: "), "{error}");
}
