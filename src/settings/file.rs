//! The settings file as it is written: its sections, its keys, and what each of them may say.

use std::{net::SocketAddr, ops::Range, time::Duration};

use gaunt_schema::plain_error;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Spanned;

use super::{
    LISTEN,
    gather::Gather,
    keeping::{Files, History, Record},
    telling::{Alertmanager, Report},
};
use crate::{
    cli::{parse_size, parse_span},
    console::{self, Colour, Glyphs, Palette},
    judge::Thresholds,
};

/// The largest limit of a page, in bytes: sixteen of them at once are all that is read above half a mebibyte.
const LARGEST_BODY: u64 = 256 << 20;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) cluster: Cluster,
    pub(super) gather: Gather,
    pub(super) serve: Serve,
    pub(super) judge: Thresholds,
    pub(super) console: Console,
    pub(super) topology: Files,
    pub(super) jobs: Files,
    pub(super) record: Record,
    pub(super) alertmanager: Spanned<Alertmanager>,
    pub(super) report: Report,
    pub(super) history: History,
}

impl Default for File {
    fn default() -> Self {
        Self {
            cluster: Cluster::default(),
            gather: Gather::default(),
            serve: Serve::default(),
            judge: Thresholds::default(),
            console: Console::default(),
            topology: Files::default(),
            jobs: Files::default(),
            record: Record::default(),
            alertmanager: Spanned::new(0..0, Alertmanager::default()),
            report: Report::default(),
            history: History::default(),
        }
    }
}

/// What the operator calls the cluster, and what it costs.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) price_per_gpu_hour: Option<Price>,
    pub(super) currency: String,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { name: String::new(), price_per_gpu_hour: None, currency: "USD".to_owned() }
    }
}

/// Where the aggregator answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Serve {
    pub(super) listen: Listen,
    pub(super) names: Vec<String>,
    pub(super) state_folder: String,
    pub(super) token_file: String,
}

/// How the console looks.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Console {
    pub(super) aggregator: String,
    refresh: Span,
    colour: ColourName,
    glyphs: GlyphsName,
    theme: ThemeName,
}

impl Default for Console {
    fn default() -> Self {
        Self {
            aggregator: String::new(),
            refresh: Span(Duration::from_secs(1)),
            colour: ColourName::default(),
            glyphs: GlyphsName::default(),
            theme: ThemeName::default(),
        }
    }
}

/// The console's colours as the file names them.
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

/// The console's palette as the file names it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThemeName {
    #[default]
    Dark,
    Light,
    Contrast,
    Colourblind,
}

/// The console's characters as the file names them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GlyphsName {
    #[default]
    Auto,
    Unicode,
    Ascii,
}

impl Console {
    pub(super) fn options(&self) -> console::Options {
        console::Options {
            period: self.refresh.value(),
            colour: match self.colour {
                ColourName::Auto => Colour::Auto,
                ColourName::None => Colour::None,
                ColourName::Sixteen => Colour::Sixteen,
                ColourName::Indexed => Colour::Indexed,
                ColourName::True => Colour::True,
            },
            glyphs: match self.glyphs {
                GlyphsName::Auto => Glyphs::Auto,
                GlyphsName::Unicode => Glyphs::Unicode,
                GlyphsName::Ascii => Glyphs::Ascii,
            },
            palette: match self.theme {
                ThemeName::Dark => Palette::Dark,
                ThemeName::Light => Palette::Light,
                ThemeName::Contrast => Palette::Contrast,
                ThemeName::Colourblind => Palette::Colourblind,
            },
            player: None,
        }
    }
}

/// What is wrong with a file, and where in it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) what: String,
    at: Range<usize>,
}

impl Fault {
    /// The line of the fault, from 1.
    pub(super) fn line(&self, text: &str) -> usize {
        let before = text.get(..self.at.start).unwrap_or(text);
        before.matches('\n').count() + 1
    }
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            Fault { what: explain(text, &at, error.message()), at }
        })?;
        file.check()?;
        file.check_judge(text)?;
        Ok(file)
    }

    /// What the judge cannot judge by, at the line of its key.
    fn check_judge(&self, text: &str) -> Result<(), Fault> {
        self.judge.check().map_err(|impossible| {
            let at = text.find(&impossible.name).unwrap_or(0);
            Fault { what: format!("{impossible}; correct it or remove the line"), at: at..at }
        })
    }

    /// What no single key can know.
    fn check(&self) -> Result<(), Fault> {
        let period = self.gather.period.value();
        if self.gather.max_body.get_ref().bytes() as u64 > LARGEST_BODY {
            let what = "max_body: a page of more than 256MiB is none; lower it".to_owned();
            return Err(Fault { what, at: self.gather.max_body.span() });
        }
        if let Some(timeout) = &self.gather.timeout
            && timeout.get_ref().value() > period
        {
            let what = format!(
                "timeout: {:?} is longer than the period of {period:?}; lower it, or leave it out",
                timeout.get_ref().value()
            );
            return Err(Fault { what, at: timeout.span() });
        }
        for group in &self.gather.groups {
            group.get_ref().check().map_err(|what| Fault { what, at: group.span() })?;
        }
        let alertmanager = &self.alertmanager;
        alertmanager.get_ref().check().map_err(|what| Fault { what, at: alertmanager.span() })
    }
}

/// The reader's message with the key that it is about, in words for people.
fn explain(text: &str, at: &Range<usize>, message: &str) -> String {
    let message = message.trim_end();
    let message = match message.strip_prefix("unknown field") {
        None => plain_error::document(message, "TOML", toml::from_str::<toml::Table>(text).is_ok()),
        Some(rest) => format!("unknown key{rest}")
            .replace("expected one of", "this section knows")
            .replace(", expected `", "; this section knows only `")
            .replace("there are no fields", "this section has no keys yet"),
    };
    let (before, after) = text.split_at(at.start.min(text.len()));
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &before[line_start..];
    let line = format!("{line}{}", after.lines().next().unwrap_or(""));
    if message.starts_with("unknown key") {
        return format!("{message}; correct the name or remove the line");
    }
    match line.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => format!("{}: {message}", key.trim()),
        // A line without a key is no setting at all.
        _ => format!("{message}; write [SECTION], KEY = VALUE or a comment"),
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(Duration);

impl Span {
    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(super) fn value(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_span(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A price that is possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price(f64);

impl Price {
    pub(super) fn value(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let price = f64::deserialize(deserializer)?;
        if price.is_finite() && price > 0.0 {
            return Ok(Self(price));
        }
        Err(D::Error::custom(format!(
            "{price} is not a price; give a number above 0, or leave it out"
        )))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(u64);

impl Size {
    pub(super) const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Self).map_err(D::Error::custom)
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listen(SocketAddr);

impl Listen {
    pub(super) fn address(self) -> SocketAddr {
        self.0
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self(LISTEN.parse().expect("the usual address is an address"))
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!(
                "{text:?} is not an address to listen on; write ADDRESS:PORT, such as {LISTEN}"
            ))
        })
    }
}
