//! Tests of the limits and of `[judge]` in the sample settings.
//!
//! `GAUNT_BLESS=1 cargo test -p gaunt judge::thresholds` rewrites that section; review it before the commit.

use std::{fmt::Write as _, fs, path::Path};

use super::*;

/// The maximum width of a comment in the sample settings.
const WIDTH: usize = 120;

/// Renders `[judge]` of the sample settings: each limit with its reason as a comment.
fn render_section() -> String {
    let mut section = String::new();
    for limit in LIMITS {
        let mut line = "#".to_owned();
        for word in limit.reason.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                section += &line;
                line = "\n#".to_owned();
            }
            line = format!("{line} {word}");
        }
        writeln!(section, "{line}\n{} = {}", limit.name, limit.default).unwrap();
    }
    section
}

#[test]
fn sample_settings_equal_the_table() {
    const HEAD: &str = "\n[judge]\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let path = root.map(|folder| folder.join("config/gaunt.toml")).find(|path| path.is_file());
    let path = path.unwrap();
    let before = fs::read_to_string(&path).unwrap();
    let (others, _) = before.split_once(HEAD).unwrap();
    let after = format!("{others}{HEAD}{}", render_section());
    if std::env::var_os("GAUNT_BLESS").is_some() {
        fs::write(&path, after).unwrap();
        return;
    }
    assert!(before == after, "`[judge]` of {} differs; run with GAUNT_BLESS=1", path.display());
}

/// An explanation lists some limits in the order of their names: none may refer to its neighbour in the table.
#[test]
fn reason_of_a_limit_stands_alone() {
    let refers = LIMITS.iter().filter(|limit| limit.reason.trim_start().starts_with("The same"));
    assert_eq!(refers.map(|limit| limit.name).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn impossible_limits_are_rejected_by_name() {
    assert_eq!(Thresholds::default().impossible_limits().next(), None);
    let refused = |limits: Thresholds| limits.impossible_limits().next().unwrap().to_string();
    let above = Thresholds { tensor_busy_ratio: 25.0, ..Thresholds::default() };
    assert_eq!(refused(above), "tensor_busy_ratio is 25.0; it must be a number between 0 and 1");
    let below = Thresholds { enter_seconds: -5.0, ..Thresholds::default() };
    assert_eq!(refused(below), "enter_seconds is -5.0; it must be a number of at least 0");
    let neither = Thresholds { hung_seconds: f64::NAN, ..Thresholds::default() };
    assert!(refused(neither).starts_with("hung_seconds is not finite"));
}

#[test]
fn unknown_limit_is_rejected() {
    let limits: Result<Thresholds, _> = serde_json::from_str(r#"{"tensor_busy": 0.3}"#);
    assert!(limits.unwrap_err().to_string().contains("unknown field `tensor_busy`"));
}
