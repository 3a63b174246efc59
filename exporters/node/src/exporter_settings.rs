//! The settings file, and how file and command line combine into a plan.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::text::{CompatOptions, DcgmNames};
use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    NodeArguments, ProbeSchedule, ReadingSource, SamplerOptions,
    exporter_service::ExporterPlan,
    setting_values::{CompatExporter, PERIODS, parse_duration},
};

mod settings_text;
#[cfg(test)]
mod tests;

use settings_text::SettingsText;

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
    /// Entries of the file, or arguments, are invalid.
    #[error("{}", errors.join("\n"))]
    Content {
        /// Each error, with file and line if it is in the file.
        errors: Vec<String>,
    },
}

impl ExporterSettingsError {
    /// Each error of the settings.
    pub fn into_messages(self) -> Vec<String> {
        match self {
            Self::Read { .. } => vec![self.to_string()],
            Self::Content { errors } => errors,
        }
    }
}

/// Why two versions of dcgm-exporter are refused.
const TWO_DCGM_VERSIONS: &str =
    "compat has dcgm-exporter's names of 4.8 and of 4.9; keep one of dcgm=4.8 and dcgm=4.9";

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
    let (file, mut text) = match &arguments.config {
        Some(path) => read_settings(path)?,
        None => Default::default(),
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
    let mut names = arguments.name.clone().or(file.names).unwrap_or_default();
    names.extend(sampler.node_name.clone());
    let dialects = arguments.compat.clone().or(file.compat).unwrap_or_default();
    let mut dcgm = DCGM_VERSIONS.iter().filter(|(version, _)| dialects.contains(version));
    let dcgm_names = dcgm.next().map(|(_, names)| *names);
    for (key, flag, root, argument) in [
        ("sys_root", "--sys-root", &sampler.sys_root, &arguments.sys_root),
        ("proc_root", "--proc-root", &sampler.proc_root, &arguments.proc_root),
    ] {
        if !root.is_dir() {
            let name = if argument.is_some() { flag } else { key };
            let what = format!("{name}: {} is not a folder; correct the path", root.display());
            text.add_error(key, argument.is_some(), what);
        }
    }
    if dcgm.next().is_some() {
        text.add_error("compat", arguments.compat.is_some(), TWO_DCGM_VERSIONS.to_owned());
    }
    text.into_result()?;
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

/// The settings of a file without the entries that have errors, and its text with the errors.
fn read_settings(
    path: &Path,
) -> Result<(ExporterSettingsFile, SettingsText), ExporterSettingsError> {
    let mut text = SettingsText::read_file(path)?;
    let Some(mut settings) = text.parse::<ExporterSettingsFile>() else {
        text.into_result()?;
        return Ok(Default::default());
    };
    settings.resolve_paths(path.parent().unwrap_or(Path::new("")));
    Ok((settings, text))
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
