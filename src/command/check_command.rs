//! `gaunt check-config`: checks settings, rules and topology, and every file that the settings name, without starting
//! anything.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser as _;
use gaunt_node::{NodeArguments, exporter_settings, web_access::WebAccess};
use gaunt_schema::sanitized_text::sanitize_lines;

use super::snapshot_command::print_page;
use crate::serve::{self, RoleOptions};
use gaunt_scrape::{ScrapePlan, ServerAccess};

mod rule_check;

/// Exit code if a file has an error.
const INVALID: u8 = 1;

/// The files that are checked.
#[derive(Clone, Debug, Default)]
pub struct CheckPaths {
    /// Settings of gaunt.
    pub settings: Vec<PathBuf>,
    /// Settings of gaunt-node.
    pub node_settings: Vec<PathBuf>,
    /// Topology files, besides those that the settings name.
    pub topology: Vec<PathBuf>,
    /// Files of Prometheus rules.
    pub rules: Vec<PathBuf>,
}

/// The files that valid settings name.
#[derive(Debug)]
pub struct NamedFiles {
    /// Topology and jobs.
    pub site: gaunt_site::SiteOptions,
    /// The tokens of the aggregator.
    pub roles: RoleOptions,
    /// Its TLS and users.
    pub web_config: Option<PathBuf>,
    /// The targets with their host lists.
    pub plan: ScrapePlan,
    /// The servers that gaunt asks or sends to: their CAs, certificates and credentials.
    pub servers: Vec<ServerAccess>,
}

/// Reads the settings of gaunt.
pub type SettingsReader = fn(&Path) -> Result<NamedFiles, Vec<String>>;

/// The result so far.
#[derive(Debug, Default)]
struct CheckResult {
    /// Number of files that were checked.
    files: usize,
    /// Each error: file, line if it has one, and next step.
    errors: Vec<String>,
}

impl CheckResult {
    /// Counts a file, and keeps its error.
    fn add<T, E: std::fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        self.files += 1;
        result.map_err(|error| self.errors.push(format!("{error:#}"))).ok()
    }
}

/// Checks the files, and prints every error; the exit code is 1 if there is one.
pub fn run(files: &CheckPaths, read_settings: SettingsReader) -> anyhow::Result<ExitCode> {
    let result = check_files(files, read_settings);
    let mut page = String::new();
    for error in &result.errors {
        // Writing to a string cannot fail.
        _ = writeln!(page, "{}", sanitize_lines(error));
    }
    let files = if result.files == 1 { "file" } else { "files" };
    _ = match result.errors.len() {
        0 => writeln!(page, "No errors in {} {files}.", result.files),
        1 => writeln!(page, "1 error in {} {files}.", result.files),
        errors => writeln!(page, "{errors} errors in {} {files}.", result.files),
    };
    print_page(&page)?;
    Ok(ExitCode::from(if result.errors.is_empty() { 0 } else { INVALID }))
}

fn check_files(files: &CheckPaths, read_settings: SettingsReader) -> CheckResult {
    let mut result = CheckResult::default();
    for path in &files.settings {
        result.files += 1;
        match read_settings(path) {
            Ok(named) => {
                let before = result.errors.len();
                check_named_files(&named, &mut result);
                add_lines(path, &mut result.errors[before..]);
            }
            Err(errors) => result.errors.extend(errors),
        }
    }
    for path in &files.node_settings {
        result.files += 1;
        result.errors.extend(check_node_settings(path).err().into_iter().flatten());
    }
    for path in &files.topology {
        check_topology(path, &mut result);
    }
    for (path, text) in files.rules.iter().map(|path| (path, rule_check::read_rules(path))) {
        if let Some(text) = result.add(text) {
            result.errors.extend(rule_check::list_errors(path, &text));
        }
    }
    result
}

/// Checks what the settings name: topology, jobs, host lists, tokens, TLS and users.
fn check_named_files(named: &NamedFiles, result: &mut CheckResult) {
    for path in &named.site.topology {
        check_topology(path, result);
    }
    for path in &named.site.jobs {
        result.add(gaunt_site::read_jobs(path));
    }
    for token in &named.roles.tokens {
        result.add(serve::check_token_file(&token.file));
    }
    if let Some(path) = &named.web_config {
        result.add(WebAccess::from_file(path));
    }
    let (files, errors) = named.plan.list_file_errors();
    result.files += files;
    result.errors.extend(errors);
    for access in &named.servers {
        let (files, error) = access.check_files();
        result.files += files;
        result.errors.extend(error);
    }
}

/// Puts the line of the settings that names the file before an error about a file that cannot be read.
fn add_lines(settings: &Path, errors: &mut [String]) {
    let text = std::fs::read_to_string(settings).unwrap_or_default();
    let folder = settings.parent().unwrap_or(Path::new(""));
    let named: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with('#'))
        .flat_map(|(index, line)| line.split('"').skip(1).step_by(2).map(move |name| (index, name)))
        .filter(|(_, name)| !name.is_empty())
        .map(|(index, name)| (index + 1, format!("{}: ", folder.join(name).display())))
        .collect();
    for error in errors.iter_mut().filter(|error| error.contains(" (os error ")) {
        if let Some((line, _)) = named.iter().find(|(_, path)| error.contains(path)) {
            *error = format!("{}:{line}: {error}", settings.display());
        }
    }
}

/// Checks a topology; what would be skipped when it is read is an error here.
fn check_topology(path: &Path, result: &mut CheckResult) {
    let Some(topology) = result.add(gaunt_site::read_topology(path)) else { return };
    result.errors.extend(topology.skipped.map(|skipped| skipped.to_string()));
}

fn check_node_settings(path: &Path) -> Result<(), Vec<String>> {
    let line = ["gaunt-node".as_ref(), "--config".as_ref(), path.as_os_str()];
    let arguments = NodeArguments::try_parse_from(line).map_err(|error| vec![error.to_string()])?;
    let plan = exporter_settings::build_plan(&arguments)
        .map_err(exporter_settings::ExporterSettingsError::into_messages)?;
    let access = plan.web_config.as_deref().map(WebAccess::from_file).transpose();
    access.map(drop).map_err(|error| vec![error.to_string()])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::{Settings, SettingsError};

    fn read_settings(path: &Path) -> Result<NamedFiles, Vec<String>> {
        let settings = Settings::load_file(Some(path)).map_err(SettingsError::into_messages)?;
        let (plan, roles) = (settings.scrape_plan(), settings.role_options(None, None));
        let servers = settings.server_accesses();
        let (site, web_config) = (settings.site, settings.web_config);
        Ok(NamedFiles { site, roles, web_config, plan, servers })
    }

    /// The errors of files with these texts, without their folder.
    fn check(texts: &[(&str, &str)]) -> CheckResult {
        let folder = tempfile::tempdir().unwrap();
        let mut files = CheckPaths::default();
        for (name, text) in texts {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            match *name {
                "gaunt.toml" => files.settings.push(path),
                "node.toml" => files.node_settings.push(path),
                "topology.conf" | "topology.toml" => files.topology.push(path),
                "rules.yml" => files.rules.push(path),
                _ => {}
            }
        }
        let mut result = check_files(&files, read_settings);
        let folder = format!("{}/", folder.path().display());
        for error in &mut result.errors {
            *error = error.replace(&folder, "");
        }
        result
    }

    #[test]
    fn samples_of_the_settings_are_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let rules = ["findings", "hardware", "health", "network", "probe", "recording"];
        let result = check_files(
            &CheckPaths {
                settings: vec![root.join("config/gaunt.toml")],
                node_settings: vec![root.join("config/gaunt-node.toml")],
                topology: vec![root.join("config/topology.toml")],
                rules: rules
                    .map(|name| root.join(format!("config/prometheus/rules/gaunt/{name}.yml")))
                    .into(),
            },
            read_settings,
        );
        assert_eq!(result.errors, [""; 0]);
        assert_eq!(result.files, 9);
    }

    #[test]
    fn every_file_has_its_error_with_line_and_next_step() {
        let result = check(&[
            ("gaunt.toml", "[gather]\n\nperod = \"1s\"\n"),
            ("node.toml", "\nperiod = \"5\"\nlisten = 1\n"),
            ("topology.toml", "[[switch]]\nnonsense = 1\n"),
            (
                "rules.yml",
                "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: gaunt_findin > 0\n",
            ),
        ]);
        assert_eq!(result.errors.len(), 5, "{:?}", result.errors);
        for (error, start) in result.errors.iter().zip([
            "gaunt.toml:3: ",
            "node.toml:2: ",
            "node.toml:3: listen: ",
            "topology.toml:",
            "rules.yml:5: gaunt_findin is no metric",
        ]) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn every_error_of_the_settings_is_named_with_its_line() {
        let result = check(&[(
            "gaunt.toml",
            "[serve]\nlistn = \"a\"\ntokenfile = \"x\"\n[judge]\nbusiest_cpu_ratio = 7.0\n\
             hungry_ratio = \"x\"\n[gather]\nperiod = \"5 parsecs\"\ntimeout = \"2s\"\n\
             targets = [\"a\", \"gpu[001-\"]\n[[gather.groups]]\nbearer_file = 1\n\
             [store]\nevery = \"5m\"\n",
        )]);
        let starts = [
            "gaunt.toml:2: unknown key `listn`",
            "gaunt.toml:3: unknown key `tokenfile`",
            "gaunt.toml:5: busiest_cpu_ratio is 7.0; it must be a number between 0 and 1",
            "gaunt.toml:6: hungry_ratio: ",
            "gaunt.toml:8: period: \"5 parsecs\" is not a duration",
            "gaunt.toml:10: targets: host list \"gpu[001-\", character 4: unclosed bracket",
            "gaunt.toml:12: bearer_file: ",
            "gaunt.toml:14: store.every is 300s",
        ];
        assert_eq!(result.errors.len(), starts.len(), "{:?}", result.errors);
        for (error, start) in result.errors.iter().zip(starts) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn files_that_the_settings_name_are_checked() {
        let text = "[serve]\ntoken_file = \"token\"\nweb_config = \"web.yml\"\n[topology]\nfiles = [\"missing.toml\"]\n\
                    [jobs]\nfiles = [\"jobs.json\"]\n[gather]\ntargets_files = [\"none.txt\", \"hosts.txt\"]\nfile_sd = [\"sd-*.yml\", \"none.json\"]\n\
                    [[gather.groups]]\nname = \"s\"\ntargets = [\"s1\"]\nscheme = \"https\"\ntls = { ca_file = \"no-ca.pem\" }\n\
                    [alertmanager]\nurls = [\"https://a.example\"]\nbearer_file = \"no-token\"\n";
        let web = "basic_auth_users: { alice: plain }\n";
        let node = ("node.toml", "web_config = \"node-web.yml\"\n");
        let lists = [
            ("hosts.txt", "a\nb[1-\n"),
            ("sd-a.yml", "- targets: [\"a:1\"]\n"),
            ("sd-b.yml", "- targets: [\n"),
            ("sd-c.yml", "- targets: [\"a:x\"]\n"),
        ];
        let named = [("token", "short"), ("jobs.json", "{"), ("web.yml", web), node];
        let named = [named.as_slice(), lists.as_slice()].concat();
        let result = check(&[&[("gaunt.toml", text)], named.as_slice()].concat());
        let errors = result.errors.join("\n");
        for part in [
            "every user can read the token",
            "gaunt.toml:5: cannot read missing.toml: No such file or directory",
            "jobs.json:1",
            "gaunt.toml:9: none.txt: No such file or directory",
            "the password of \"alice\" is no bcrypt hash",
            "cannot read node-web.yml",
            "hosts.txt:2: host list \"b[1-\"",
            "sd-b.yml: line ",
            "sd-c.yml: ",
            "gaunt.toml:10: none.json: No such file or directory (os error 2); check the path",
            "gaunt.toml:15: cannot read no-ca.pem",
            "gaunt.toml:18: cannot read no-token",
        ] {
            assert!(errors.contains(part), "{part} is not in {errors}");
        }
        assert_eq!(result.errors.len(), 12, "{errors}");
    }

    #[test]
    fn file_that_cannot_be_read_does_not_stop_the_others() {
        let result = check_files(
            &CheckPaths {
                settings: vec!["/nowhere/gaunt.toml".into()],
                node_settings: vec!["/nowhere/node.toml".into()],
                topology: vec!["/nowhere/topology.toml".into()],
                rules: vec!["/nowhere/rules.yml".into()],
            },
            read_settings,
        );
        assert_eq!((result.files, result.errors.len()), (4, 4), "{:?}", result.errors);
        assert!(result.errors.iter().all(|error| error.contains("/nowhere/")));
    }
}
