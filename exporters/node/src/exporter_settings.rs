//! The settings file, and how file and command line combine into a plan.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{
    plain_error,
    text::{CompatOptions, DcgmNames},
};
use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    NodeArguments, ProbeSchedule, ReadingSource, SamplerOptions,
    exporter_service::ExporterPlan,
    setting_values::{CompatExporter, PERIODS, parse_duration},
    thread_read::{READ_DEADLINE, read_on_thread},
};

/// The default listen address: this machine only.
const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9770);

/// The default address of NCCL's RAS service.
const RAS_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 28_028);

/// The shortest and the longest deadline. A healthy call may take some milliseconds; minutes would defeat the purpose
/// of a deadline.
const DEADLINES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(5));

/// The shortest and the longest time between two probes: more often would disturb jobs, more rarely is of no use.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ExporterSettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings {path}: {why}; check --config", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The kernel's error; part of the message, and therefore not its source.
        why: io::Error,
    },
    /// The file has an invalid entry.
    #[error("{path}:{line}: {what}", path = path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A root folder does not exist.
    #[error("{root} is not a folder; check --{flag}-root", root = root.display())]
    NoFolder {
        /// Where it should be.
        root: PathBuf,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The page would have the names of two versions of one exporter.
    #[error(
        "compat has dcgm-exporter's names of 4.8 and of 4.9; keep one of dcgm=4.8 and dcgm=4.9"
    )]
    TwoDcgmVersions,
}

/// The versions of dcgm-exporter whose names a page can have, one at a time.
const DCGM_VERSIONS: [(CompatExporter, DcgmNames); 2] = [
    (CompatExporter::Dcgm4_8, DcgmNames::Before4_9),
    (CompatExporter::Dcgm4_9, DcgmNames::Since4_9),
];

/// The content of the file. Missing settings have their default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExporterSettingsFile {
    listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "period_in_file")]
    period: Option<Duration>,
    node: Option<String>,
    names: Option<Vec<String>>,
    web_config: Option<PathBuf>,
    compat: Option<Vec<CompatExporter>>,
    sys_root: Option<PathBuf>,
    proc_root: Option<PathBuf>,
    exclude: Option<Vec<String>>,
    rails: Option<Vec<String>>,
    #[serde(alias = "without")]
    disable: Option<Vec<ReadingSource>>,
    textfiles: Option<PathBuf>,
    inspector_logs: Option<PathBuf>,
    #[serde(default, deserialize_with = "deadline_in_file")]
    collector_deadline: Option<Duration>,
    #[serde(default)]
    nvml: NvmlSettings,
    #[serde(default)]
    kubelet: KubeletSettings,
    #[serde(default)]
    probe: ProbeSettings,
    #[serde(default)]
    ras: RasSettings,
}

/// The settings of the NVIDIA driver.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NvmlSettings {
    library: Option<PathBuf>,
    #[serde(default, deserialize_with = "deadline_in_file")]
    call_deadline: Option<Duration>,
    #[serde(default, deserialize_with = "deadline_in_file")]
    init_deadline: Option<Duration>,
    kernel_log: Option<PathBuf>,
}

/// The settings of the kubelet collector.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KubeletSettings {
    socket: Option<PathBuf>,
}

/// The settings of probes; they are enabled if the interval is set.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeSettings {
    #[serde(default, deserialize_with = "pause_in_file")]
    every: Option<Duration>,
    program: Option<PathBuf>,
    state: Option<PathBuf>,
    #[serde(default)]
    arguments: Vec<String>,
}

/// The settings of NCCL's RAS service.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RasSettings {
    #[serde(default)]
    enabled: bool,
    address: Option<SocketAddr>,
}

impl RasSettings {
    /// The address of the service, if it is enabled.
    fn into_address(self) -> Option<SocketAddr> {
        self.enabled.then(|| self.address.unwrap_or(RAS_ADDRESS))
    }
}

impl ProbeSettings {
    /// The schedule, if probes are enabled.
    fn into_schedule(self) -> Option<ProbeSchedule> {
        let default = ProbeSchedule::default();
        Some(ProbeSchedule {
            every: self.every?,
            program: self.program.unwrap_or(default.program),
            folder: self.state.unwrap_or(default.folder),
            arguments: self.arguments,
        })
    }
}

impl ExporterSettingsFile {
    /// The settings with paths relative to the folder of their file; empty ones are not set. What has no folder at all is a
    /// name where names are searched for: a library by the loader, a program in `PATH`.
    fn resolve_paths(&mut self, folder: &Path) {
        for path in [
            &mut self.web_config,
            &mut self.sys_root,
            &mut self.proc_root,
            &mut self.textfiles,
            &mut self.inspector_logs,
            &mut self.nvml.kernel_log,
            &mut self.kubelet.socket,
            &mut self.probe.state,
        ] {
            *path = path
                .take()
                .filter(|path| !path.as_os_str().is_empty())
                .map(|path| folder.join(path));
        }
        for name in [&mut self.nvml.library, &mut self.probe.program] {
            let is_path = |name: &PathBuf| name.as_os_str().as_encoded_bytes().contains(&b'/');
            *name = name.take().filter(|name| !name.as_os_str().is_empty());
            *name = name.take().map(|name| if is_path(&name) { folder.join(name) } else { name });
        }
    }
}

/// The plan: the defaults, overridden by the file, overridden by the command line.
pub fn build_plan(arguments: &NodeArguments) -> Result<ExporterPlan, ExporterSettingsError> {
    let file = match &arguments.config {
        Some(path) => read_settings(path)?,
        None => ExporterSettingsFile::default(),
    };
    let default = SamplerOptions::default();
    let choose =
        |argument: &Option<PathBuf>, file, default| argument.clone().or(file).unwrap_or(default);
    let disabled = arguments.disable.clone().or(file.disable);
    let sampler = SamplerOptions {
        sys_root: choose(&arguments.sys_root, file.sys_root, default.sys_root),
        proc_root: choose(&arguments.proc_root, file.proc_root, default.proc_root),
        nvml_library: arguments.nvml_library.clone().or(file.nvml.library),
        node_name: arguments.node.clone().or(file.node),
        period: arguments.period.or(file.period).unwrap_or(default.period),
        call_deadline: file.nvml.call_deadline.unwrap_or(default.call_deadline),
        init_deadline: file.nvml.init_deadline.unwrap_or(default.init_deadline),
        collector_deadline: file.collector_deadline.unwrap_or(default.collector_deadline),
        without: disabled.into_iter().flatten().collect(),
        kubelet: file.kubelet.socket.unwrap_or(default.kubelet),
        kernel_log: file.nvml.kernel_log.or(default.kernel_log),
        exclude: arguments.exclude.clone().or(file.exclude).unwrap_or_default(),
        rails: file.rails.unwrap_or_default(),
        textfiles: arguments.textfiles.clone().or(file.textfiles),
        inspector_logs: file.inspector_logs,
        probe: file.probe.into_schedule(),
        ras: file.ras.into_address(),
        ..SamplerOptions::default()
    };
    for (flag, root) in [("sys", &sampler.sys_root), ("proc", &sampler.proc_root)] {
        if !root.is_dir() {
            return Err(ExporterSettingsError::NoFolder { root: root.clone(), flag });
        }
    }
    let mut names = arguments.name.clone().or(file.names).unwrap_or_default();
    names.extend(sampler.node_name.clone());
    let dialects = arguments.compat.clone().or(file.compat).unwrap_or_default();
    let mut dcgm = DCGM_VERSIONS.iter().filter(|(version, _)| dialects.contains(version));
    let dcgm_names = dcgm.next().map(|(_, names)| *names);
    if dcgm.next().is_some() {
        return Err(ExporterSettingsError::TwoDcgmVersions);
    }
    Ok(ExporterPlan {
        listen: arguments.listen.or(file.listen).unwrap_or(LISTEN),
        names,
        web_config: arguments.web_config.clone().or(file.web_config),
        compat: CompatOptions {
            dcgm: dcgm_names,
            node: dialects.contains(&CompatExporter::Node),
            xid: sampler.is_enabled(ReadingSource::Xid),
        },
        sampler,
    })
}

fn read_settings(path: &Path) -> Result<ExporterSettingsFile, ExporterSettingsError> {
    let file = path.to_path_buf();
    let text = read_on_thread(READ_DEADLINE, move || fs::read_to_string(file))
        .flatten()
        .map_err(|why| ExporterSettingsError::Read { path: path.to_path_buf(), why })?;
    let mut settings: ExporterSettingsFile = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let before = text.get(..offset).unwrap_or_default();
        // On one line, as the log is.
        let message = plain_error::document(
            error.message(),
            "TOML",
            toml::from_str::<toml::Table>(&text).is_ok(),
        );
        ExporterSettingsError::Malformed {
            path: path.to_path_buf(),
            line: before.matches('\n').count() + 1,
            what: match plain_error::toml_key(&text, offset) {
                Some(key) if !message.contains(key) => format!("{key}: {message}"),
                _ => message,
            },
        }
    })?;
    settings.resolve_paths(path.parent().unwrap_or(Path::new("")));
    Ok(settings)
}

fn period_in_file<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    deserialize_duration("period", input, PERIODS)
}

fn deadline_in_file<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    deserialize_duration("deadline", input, DEADLINES)
}

fn pause_in_file<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    deserialize_duration("probe interval", input, PAUSES)
}

fn deserialize_duration<'de, D: Deserializer<'de>>(
    name: &str,
    input: D,
    bounds: (Duration, Duration),
) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(input)?;
    let span = parse_duration(&text, bounds);
    span.map(Some).map_err(|why| D::Error::custom(format!("the {name} {text:?}: {why}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let sample = include_str!("../../../config/gaunt-node.toml");
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
        let arguments =
            config.into_iter().chain(["--web-config", "web.yml", "--textfiles", "text"]);
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
        let plan =
            plan_from_file(text, &["--listen", "127.0.0.1:2", "--compat", "dcgm,node"]).unwrap();
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
            ("sys_root = \"/nowhere\"\n", "/nowhere is not a folder; check --sys-root"),
        ] {
            let error = plan_from_file(text, &[]).unwrap_err();
            assert!(error.starts_with(message), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
