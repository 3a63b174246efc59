//! Settings file: its sections and keys, and the valid values of each.

use std::{ops::Range, time::Duration};

use gaunt_api::filter::nearest_word;
use gaunt_node::toml_faults::read_toml;
use gaunt_schema::plain_error;
use serde::Deserialize;
use toml::Spanned;

use super::{
    alerting::{AlertmanagerSection, ClusterSection, ReportSection},
    gather_section::GatherSection,
    peers_section::PeersSection,
    prometheus_section::PrometheusSection,
    roles_section::{ProxySection, TokenSection, check_tokens},
    setting_values::{ListenSetting, SpanSetting},
    storage::{HistorySection, RecordSection, SiteFilesSection},
    store_section::StoreSection,
};
use gaunt_console::{ColourDepth, GlyphSet, Palette};
use gaunt_judge::Thresholds;

/// The largest page limit, in bytes: at most sixteen pages above half a mebibyte are read at once.
const LARGEST_BODY: u64 = 256 << 20;

/// Of a section with more keys than these, an error names the nearest one and not all.
const LISTED_KEYS: usize = 30;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SettingsFile {
    pub(super) cluster: ClusterSection,
    pub(super) gather: GatherSection,
    pub(super) serve: ServeSection,
    pub(super) judge: Thresholds,
    pub(super) console: ConsoleSection,
    pub(super) topology: SiteFilesSection,
    pub(super) jobs: SiteFilesSection,
    pub(super) record: RecordSection,
    pub(super) alertmanager: Spanned<AlertmanagerSection>,
    pub(super) report: ReportSection,
    pub(super) history: HistorySection,
    pub(super) store: Spanned<StoreSection>,
    pub(super) prometheus: Spanned<PrometheusSection>,
}

impl Default for SettingsFile {
    fn default() -> Self {
        Self {
            cluster: ClusterSection::default(),
            gather: GatherSection::default(),
            serve: ServeSection::default(),
            judge: Thresholds::default(),
            console: ConsoleSection::default(),
            topology: SiteFilesSection::default(),
            jobs: SiteFilesSection::default(),
            record: RecordSection::default(),
            alertmanager: Spanned::new(0..0, AlertmanagerSection::default()),
            report: ReportSection::default(),
            history: HistorySection::default(),
            store: Spanned::new(0..0, StoreSection::default()),
            prometheus: Spanned::new(0..0, PrometheusSection::default()),
        }
    }
}

/// Listen settings of the aggregator.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServeSection {
    pub(super) listen: ListenSetting,
    pub(super) names: Vec<String>,
    pub(super) state_folder: String,
    pub(super) token_file: String,
    pub(super) receive_token_file: String,
    pub(super) web_config: String,
    pub(super) audit_file: String,
    pub(super) read_needs_role: bool,
    pub(super) tokens: Spanned<Vec<TokenSection>>,
    pub(super) trusted_proxy: Option<Spanned<ProxySection>>,
    pub(super) peers: Spanned<PeersSection>,
}

impl Default for ServeSection {
    fn default() -> Self {
        Self {
            listen: ListenSetting::default(),
            names: Vec::new(),
            state_folder: String::new(),
            token_file: String::new(),
            receive_token_file: String::new(),
            web_config: String::new(),
            audit_file: String::new(),
            read_needs_role: false,
            tokens: Spanned::new(0..0, Vec::new()),
            trusted_proxy: None,
            peers: Spanned::new(0..0, PeersSection::default()),
        }
    }
}

/// Console settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConsoleSection {
    pub(super) aggregator: String,
    pub(super) ca_file: String,
    refresh: SpanSetting,
    colour: ColourName,
    glyphs: GlyphsName,
    theme: ThemeName,
    restricted: bool,
    restricted_copy: bool,
}

impl Default for ConsoleSection {
    fn default() -> Self {
        Self {
            aggregator: String::new(),
            ca_file: String::new(),
            refresh: SpanSetting::from_seconds(1),
            colour: ColourName::default(),
            glyphs: GlyphsName::default(),
            theme: ThemeName::default(),
            restricted: false,
            restricted_copy: false,
        }
    }
}

/// Colour modes of the console.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum ColourName {
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "none")]
    None,
    #[serde(rename = "16")]
    Sixteen,
    #[serde(rename = "256")]
    Indexed,
    #[serde(rename = "true")]
    True,
}

/// Palettes of the console.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThemeName {
    #[default]
    Dark,
    Light,
    Contrast,
    Colourblind,
}

/// Character sets of the console.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GlyphsName {
    #[default]
    Auto,
    Unicode,
    Ascii,
}

impl ConsoleSection {
    pub(super) fn console_options(&self) -> gaunt_console::ConsoleOptions {
        gaunt_console::ConsoleOptions {
            period: self.refresh.to_duration(),
            colour: match self.colour {
                ColourName::Auto => ColourDepth::Auto,
                ColourName::None => ColourDepth::None,
                ColourName::Sixteen => ColourDepth::Sixteen,
                ColourName::Indexed => ColourDepth::Indexed,
                ColourName::True => ColourDepth::True,
            },
            glyphs: match self.glyphs {
                GlyphsName::Auto => GlyphSet::Auto,
                GlyphsName::Unicode => GlyphSet::Unicode,
                GlyphsName::Ascii => GlyphSet::Ascii,
            },
            palette: match self.theme {
                ThemeName::Dark => Palette::Dark,
                ThemeName::Light => Palette::Light,
                ThemeName::Contrast => Palette::Contrast,
                ThemeName::Colourblind => Palette::Colourblind,
            },
            player: None,
            restricted: self.restricted,
            restricted_copy: self.restricted_copy,
            tour: false,
            contexts: None,
        }
    }
}

/// An error in a file, and its position.
#[derive(Debug)]
pub(super) struct SettingsFault {
    pub(super) what: String,
    span: Range<usize>,
}

impl SettingsFault {
    fn of(text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        Self { what: explain_error(text, &span, error.message()), span }
    }

    /// Line of the error, from 1.
    pub(super) fn line_number(&self, text: &str) -> usize {
        let before = text.get(..self.span.start).unwrap_or(text);
        before.matches('\n').count() + 1
    }
}

impl SettingsFile {
    /// Parses the text of a file; else returns every fault, in the order of the lines.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<SettingsFault>> {
        let (file, errors) = read_toml::<Self>(text);
        let mut faults: Vec<SettingsFault> =
            errors.iter().map(|error| SettingsFault::of(text, error)).collect();
        if let Some(file) = &file {
            // A check across keys says nothing of a section in which a key is left out as faulty.
            let left_out: Vec<usize> =
                faults.iter().map(|fault| section_start(text, fault.span.start)).collect();
            let mut found = Vec::new();
            file.check_sections(text, &mut found);
            found.retain(|fault| !left_out.contains(&section_start(text, fault.span.start)));
            faults.extend(found);
            file.check_thresholds(text, &mut faults);
        }
        faults.sort_by_key(|fault| fault.span.start);
        file.filter(|_| faults.is_empty()).ok_or(faults)
    }

    /// Checks the thresholds; reports an error at the line of its key.
    fn check_thresholds(&self, text: &str, faults: &mut Vec<SettingsFault>) {
        faults.extend(self.judge.impossible_limits().map(|error| {
            let line = text.find(&format!("\n{}", error.name)).map(|newline| newline + 1);
            let offset = line.or_else(|| text.find(&error.name)).unwrap_or(0);
            let what = format!("{error}; correct it or remove the line");
            SettingsFault { what, span: offset..offset }
        }));
    }

    /// Checks across keys.
    fn check_sections(&self, text: &str, faults: &mut Vec<SettingsFault>) {
        let mut add = |result: Result<(), String>, span: Range<usize>| {
            faults.extend(result.err().map(|what| {
                let start = named_key(text, span.start, &what).unwrap_or(span.start);
                SettingsFault { what, span: start..start.max(span.end) }
            }));
        };
        let (max_body, period) = (&self.gather.max_body, self.gather.period.to_duration());
        add(check_body_limit(max_body.get_ref().to_bytes() as u64), max_body.span());
        if let Some(timeout) = &self.gather.timeout {
            add(check_timeout(timeout.get_ref().to_duration(), period), timeout.span());
        }
        for group in &self.gather.groups {
            add(group.get_ref().check_group(), group.span());
        }
        add(self.alertmanager.get_ref().check_section(), self.alertmanager.span());
        add(self.serve.peers.get_ref().check_section(), self.serve.peers.span());
        add(check_tokens(self.serve.tokens.get_ref()), self.serve.tokens.span());
        if let Some(proxy) = &self.serve.trusted_proxy {
            add(proxy.get_ref().check_section(), proxy.span());
        }
        add(self.store.get_ref().check_section(), self.store.span());
        add(self.prometheus.get_ref().check_section(), self.prometheus.span());
    }
}

fn check_body_limit(bytes: u64) -> Result<(), String> {
    if bytes > LARGEST_BODY {
        return Err("max_body: the maximum is 256MiB; lower it".to_owned());
    }
    Ok(())
}

fn check_timeout(timeout: Duration, period: Duration) -> Result<(), String> {
    if timeout > period {
        return Err(format!(
            "timeout: {timeout:?} is longer than the period of {period:?}; lower it, or leave it out"
        ));
    }
    Ok(())
}

/// Where the line begins of the key that a check names as `SECTION.KEY`, in the section that begins at `start`.
fn named_key(text: &str, start: usize, what: &str) -> Option<usize> {
    let section = text.get(start..)?;
    let end = section.find("\n[").map_or(section.len(), |newline| newline + 1);
    let lines = section.get(..end)?.split_inclusive('\n').scan(start, |offset, line| {
        let begin = *offset;
        *offset += line.len();
        Some((begin, line.split_once('=').map_or("", |(key, _)| key.trim())))
    });
    let lines: Vec<(usize, &str)> = lines.collect();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
    let names = what.split(|letter| !is_name(letter)).filter_map(|word| word.rsplit_once('.'));
    let found = names.filter_map(|(_, key)| lines.iter().find(|(_, name)| *name == key));
    found.map(|(offset, _)| *offset).next()
}

/// Where the section of this offset begins.
fn section_start(text: &str, offset: usize) -> usize {
    text.get(..=offset).unwrap_or(text).rfind("\n[").unwrap_or(0)
}

/// Adds the key to the parser's message, in words for people.
fn explain_error(text: &str, span: &Range<usize>, message: &str) -> String {
    let message = message.trim_end();
    let message = match message.strip_prefix("unknown field") {
        None => plain_error::document(message, "TOML", toml::from_str::<toml::Table>(text).is_ok()),
        Some(rest) => format!("unknown key{rest}")
            .replace("expected one of", "known keys are")
            .replace(", expected `", ", known keys are `")
            .replace("there are no fields", "this section has no keys"),
    };
    let (before, after) = text.split_at(span.start.min(text.len()));
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &before[line_start..];
    let line = format!("{line}{}", after.lines().next().unwrap_or(""));
    if message.starts_with("unknown key") {
        let message = shorten_known_keys(&message).unwrap_or(message);
        return format!("{message}; correct the name or remove the line");
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        return format!("{missing} is missing in this section; add it");
    }
    match line.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => format!("{}: {message}", key.trim()),
        // A line without a key is not a setting.
        _ => format!("{message}; write [SECTION], KEY = VALUE or a comment"),
    }
}

/// The message about an unknown key of a section with many keys: with the nearest one, and where all are listed.
fn shorten_known_keys(message: &str) -> Option<String> {
    let (unknown, known) = message.split_once(", known keys are ")?;
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    if known.len() <= LISTED_KEYS {
        return None;
    }
    let key = unknown.split('`').nth(1)?;
    let meant = nearest_word(key, known.into_iter());
    let all = "the sample config/gaunt.toml has all keys of this section";
    Some(match meant {
        Some(meant) => format!("{unknown}: did you mean `{meant}`? If not, {all}"),
        None => format!("{unknown}: {all}"),
    })
}
