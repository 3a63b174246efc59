//! Tests of the user's file: every kind of entry, and faults that take nothing else with them.

use super::*;
use crate::theme::StyleRole;
use gaunt_schema::unit::Unit;

const FILE: &str = r#"
theme = "light"
bell = false
time = "+02:00"
notify = "osc777"

[units]
temperature = "fahrenheit"
traffic = "bytes"

[contexts]
prod-a = "https://10.0.0.5:9771"
prod-b = { aggregator = "https://10.1.0.5:9771", token_file = "b.token" }

[aliases]
hot = ":filter temperature>80C"

[bindings]
F = "findings"
Ctrl-g = ":gpus"

[columns]
gpus = "node,gpu,power"

[[keys]]
key = "S"
name = "ssh"
run = ["ssh", "{node}"]

[[keys]]
key = "D"
name = "drain"
run = ["scontrol", "update", "nodename={node}", "state=drain", "reason={input}"]
input = "reason of the drain"
background = true
"#;

fn parse(text: &str) -> UserConfig {
    UserConfig::parse(text, Path::new("/home/mira/.config/gaunt/config.toml"))
}

fn values(node: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([("node", node.to_owned()), ("input", "bad fan; rm -rf /".to_owned())])
}

#[test]
fn every_kind_of_entry_is_read() {
    let config = parse(FILE);
    assert!(config.errors.is_empty(), "{:?}", config.errors);
    assert_eq!(config.theme.map(|theme| theme.palette), Some(Palette::Light));
    assert!(config.silent);
    assert_eq!(config.zone, DisplayZone::Fixed(7_200));
    assert_eq!(config.notification, NotificationForm::Osc777);
    assert_eq!(config.units.format_value(50e9, Unit::BytesPerSecond), "50 GB/s");
    assert_eq!(config.contexts["prod-a"].aggregator, "https://10.0.0.5:9771");
    let token = Path::new("/home/mira/.config/gaunt/b.token");
    assert_eq!(config.contexts["prod-b"].token_file.as_deref(), Some(token));
    assert_eq!(
        config.expand_alias("hot and node=gpu003"),
        "filter temperature>80C and node=gpu003"
    );
    assert_eq!(config.expand_alias("cold"), "cold");
    assert_eq!(config.bound_command(KeyPress::Ctrl('g')), Some("gpus"));
    assert_eq!(config.columns["gpus"], "node,gpu,power");
    assert_eq!(config.bound_plugin(KeyPress::Char('D')), Some(1));
}

#[test]
fn arguments_are_filled_in_one_by_one() {
    let config = parse(FILE);
    let drain = config.plugins[1].fill_in(&values("gpu003")).unwrap();
    assert_eq!(
        drain.argv,
        ["scontrol", "update", "nodename=gpu003", "state=drain", "reason=bad fan; rm -rf /"]
    );
    assert!(drain.background);
    assert!(drain.render().ends_with("state=drain \"reason=bad fan; rm -rf /\""));
    let ssh = &config.plugins[0];
    let option = ssh.fill_in(&values("-oProxyCommand=evil")).unwrap_err();
    assert_eq!(option, "ssh: the node begins with a dash and could be read as an option");
    let absent = ssh.fill_in(&BTreeMap::new()).unwrap_err();
    assert_eq!(absent, "ssh: needs a node; choose an item that has one");
}

#[test]
fn sample_file_has_no_fault() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/user.toml");
    let config = parse(&fs::read_to_string(path).unwrap());
    assert!(config.errors.is_empty(), "{:?}", config.errors);
    assert_eq!((config.plugins.len(), config.contexts.len(), config.bindings.len()), (3, 3, 2));
}

#[test]
fn faults_are_named_and_the_rest_applies() {
    let config = parse(
        "theme = 3\nspeed = 1\nnotify = \"loud\"\n[columns]\nfish = \"node\"\n\
         gpus = \"powr\"\n[bindings]\nHyper-X = \"gpus\"\n\"?\" = \"gpus\"\nF = \"gpus\"\n\
         [[keys]]\nkey = \"S\"\n[[keys]]\nkey = \"S\"\nrun = [\"ssh\", \"{host}\"]\n\
         [[keys]]\nkey = \"S\"\nrun = [\"{node}\"]\n[[keys]]\nkey = \"S\"\nrun = [\"a\", \"{input}\"]\n\
         [units]\ntraffic = \"octets\"\npower = \"kW\"\n",
    );
    let errors = config.errors.join("\n");
    for part in [
        "theme is not a text",
        "speed is not known; known are theme",
        "notify = \"loud\" is not valid; use off, osc9 or osc777",
        "columns.fish: is not a list; lists are",
        "columns.gpus: ",
        "bindings.Hyper-X: is not a key",
        "bindings.?: keeps its meaning",
        "keys, number 1: run is not a list of texts",
        "keys, number 2: {host} in run is not known; known are node",
        "keys, number 3: run needs a program",
        "keys, number 4: run has {input}, but input = \"QUESTION\" is missing",
        "units.traffic: \"octets\" is not valid; use bits or bytes",
        "units.power: is not known; known are temperature, traffic, memory",
    ] {
        assert!(errors.contains(part), "{part} in\n{errors}");
    }
    assert_eq!(config.errors.len(), 13, "{errors}");
    assert_eq!(config.bound_command(KeyPress::Char('F')), Some("gpus"), "the rest applies");
    let broken = parse("theme = \"light\"\n[keys\n");
    assert!(broken.errors[0].starts_with("line 2: "), "{:?}", broken.errors);
    assert!(broken.errors[0].ends_with("nothing of the file applies"), "{:?}", broken.errors);
}

#[test]
fn file_is_bounded_and_restricted_mode_drops_programs_and_aggregators() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_string_lossy().into_owned();
    let path = config_path(|name| (name == "HOME").then(|| home.clone())).unwrap();
    assert!(path.ends_with(".config/gaunt/config.toml"));
    assert_eq!(config_path(|_| None), None);
    let none = UserConfig::load(Some(path.clone()), false);
    assert!(none.path.is_none() && none.errors.is_empty(), "no file is no error");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, FILE).unwrap();
    assert_eq!(UserConfig::load(Some(path.clone()), false).plugins.len(), 2);
    let restricted = UserConfig::load(Some(path.clone()), true);
    assert!(restricted.plugins.is_empty() && restricted.contexts.is_empty());
    assert_eq!(restricted.bindings.len(), 2, "keys for screens stay");
    let themes = path.with_file_name("themes");
    fs::create_dir_all(&themes).unwrap();
    fs::write(themes.join("mine.toml"), "bad = \"#123456\"\n").unwrap();
    fs::write(&path, "theme = \"mine\"\n").unwrap();
    let mine = UserConfig::load(Some(path.clone()), false).theme.unwrap();
    assert_eq!(mine.colours.unwrap().of(StyleRole::Bad).map(|(_, rgb)| rgb), Some(0x12_3456));
    fs::write(&path, "#".repeat(300_000)).unwrap();
    let large = UserConfig::load(Some(path), false);
    assert!(large.describe_errors().unwrap().contains("at most 262144 are read"));
}
