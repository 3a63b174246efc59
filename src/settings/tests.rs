//! Tests of settings files: the shipped one, and errors in invalid ones.

use super::*;
use gaunt_scrape::DiscoverySource;

fn settings_error(text: &str) -> String {
    Settings::parse(text, Path::new("gaunt.toml")).unwrap_err().to_string()
}

const SHIPPED: &str = include_str!("../../config/gaunt.toml");

#[test]
fn shipped_file_has_the_default_values() {
    let shipped = Settings::parse(SHIPPED, Path::new("")).unwrap();
    assert_eq!(format!("{shipped:?}"), format!("{:?}", Settings::default()));
}

/// A pipe without a writer answers as a network file system that is away: never.
#[test]
fn settings_file_that_does_not_answer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gaunt.toml");
    let (pipe, owner) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, owner, 0).unwrap();
    let error = Settings::load_within(&path, Duration::from_millis(20)).unwrap_err().to_string();
    let expected = "gaunt.toml: its file system does not answer within 0.02 s; check the path";
    assert!(error.contains(expected), "{error}");
}

/// Keys without a default are comments in the shipped file; they must be valid as well.
#[test]
fn shipped_file_is_valid_with_every_comment_removed() {
    let full: String = SHIPPED
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key)
                if (key.contains(" = ") || key.starts_with("[[")) && !key.starts_with(' ') =>
            {
                format!("{key}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let settings = Settings::parse(&full, Path::new("")).unwrap();
    assert_eq!(settings.engine.price_per_gpu_hour, Some(2.0));
    assert_eq!(settings.timeout, Some(Duration::from_millis(800)));
    let group = &settings.groups[1];
    assert_eq!(
        (group.name.as_str(), group.sources.len(), group.defaults.port),
        ("switches", 5, 9116)
    );
    assert!(
        group.access.credentials.is_some()
            && group.compress
            && !group.address_policy.allow.is_empty()
    );
}

#[test]
fn judge_limits_are_all_in_the_shipped_file() {
    let limits = toml::Table::try_from(gaunt_judge::Thresholds::default()).unwrap();
    for key in limits.keys() {
        assert!(SHIPPED.contains(&format!("\n{key} = ")), "{key} is missing in config/gaunt.toml");
    }
}

#[test]
fn settings_of_all_sections_are_applied() {
    let text = "[cluster]\nname = \"prod\"\nprice_per_gpu_hour = 2.5\ncurrency = \"EUR\"\n\
                [gather]\ntargets = [\"gpu[1-2]\"]\ntargets_files = [\"t.txt\"]\nperiod = \"10s\"\n\
                max_body = \"1MiB\"\n[serve]\nlisten = \"0.0.0.0:1\"\n[judge]\nenter_seconds = 7\n";
    let settings = Settings::parse(text, Path::new("/etc/gaunt/gaunt.toml")).unwrap();
    assert_eq!(settings.engine.cluster, "prod");
    assert_eq!(settings.engine.price_per_gpu_hour, Some(2.5));
    assert_eq!(settings.engine.currency, "EUR");
    assert_eq!(settings.engine.period, Duration::from_secs(10));
    assert!((settings.engine.thresholds.enter_seconds - 7.0).abs() < f64::EPSILON);
    let plan = settings.scrape_plan();
    assert_eq!(plan.options.timeout, Duration::from_secs(4));
    assert_eq!(plan.options.max_body, 1 << 20);
    assert_eq!(settings.listen.port(), 1);
    let names: Vec<_> =
        settings.groups[0].sources.iter().map(DiscoverySource::display_name).collect();
    assert_eq!(names, ["/etc/gaunt/gaunt.toml", "/etc/gaunt/t.txt"]);
}

#[test]
fn invalid_setting_is_refused_with_file_line_key_and_next_step() {
    let table = [
        (
            "[gathr]\n",
            "gaunt.toml:1: unknown key `gathr`, known keys are `cluster`, `gather`, `serve`, \
             `judge`, `console`, `topology`, `jobs`, `record`, `alertmanager`, `report`, \
             `history`, `store`, `prometheus`; correct the name or remove the line",
        ),
        (
            "[judge]\nbusiest_cpu_rati = 0.5\n",
            "gaunt.toml:2: unknown key `busiest_cpu_rati`: did you mean `busiest_cpu_ratio`? If not, \
             the sample config/gaunt.toml has all keys of this section; correct the name or remove the \
             line",
        ),
        (
            "[judge]\nfoo = 0.5\n",
            "gaunt.toml:2: unknown key `foo`: the sample config/gaunt.toml has all keys of this \
             section; correct the name or remove the line",
        ),
        (
            "\n[gather]\nperiod = \"0s\"\n",
            "gaunt.toml:3: period: 0s is out of range; allowed are 100ms to 60m",
        ),
        ("[gather]\nperiod = 1\n", "gaunt.toml:2: period: 1 is invalid; write a string in quotes"),
        (
            "[gather]\nperiod = \"1s\"\ntimeout = \"2s\"\n",
            "gaunt.toml:3: timeout: 2s is longer than the period of 1s; lower it, or leave it out",
        ),
        (
            "[gather]\nmax_body = \"1XB\"\n",
            "gaunt.toml:2: max_body: \"1XB\" is not a size; write it as 512KiB, 16MiB or 1GB",
        ),
        (
            "[serve]\nlisten = \"9771\"\n",
            "gaunt.toml:2: listen: \"9771\" is not an address to listen on; write ADDRESS:PORT, \
             such as 127.0.0.1:9771",
        ),
        (
            "[cluster]\nprice_per_gpu_hour = -1.0\n",
            "gaunt.toml:2: price_per_gpu_hour: -1 is not a price; give a number above 0, or leave \
             it out",
        ),
        (
            "[judge]\n\nio_pressure_ratio = 10.0\n",
            "gaunt.toml:3: io_pressure_ratio is 10.0; it must be a number between 0 and 1; \
             correct it or remove the line",
        ),
        (
            "[judge]\nenter_seconds = -5.0\n",
            "gaunt.toml:2: enter_seconds is -5.0; it must be a number of at least 0; correct \
             it or remove the line",
        ),
        (
            "[gather\n",
            "gaunt.toml:1: invalid TOML: expected `]`; write [SECTION], KEY = VALUE or a \
             comment",
        ),
        (
            "garbage\n",
            "gaunt.toml:1: invalid TOML: expected `=`; write [SECTION], KEY = VALUE or a \
             comment",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(settings_error(text), expected);
    }
}

#[test]
fn invalid_gather_section_is_refused() {
    let table = [
        (
            "[gather]\nperod = \"1s\"\n",
            "gaunt.toml:2: unknown key `perod`, known keys are `targets`, `targets_files`, \
             `file_sd`, `period`, `timeout`, `max_body`, `compress`, `open_metrics`, `frames`, \
             `allow`, `removal_guard`, `max_samples`, `max_series`, `max_new_series`, \
             `max_all_samples`, `max_all_series`, `max_all_new_series`, `max_all_bytes`, `groups`; \
             correct the name or remove the line",
        ),
        (
            "[gather]\nmax_body = \"512MiB\"\n",
            "gaunt.toml:2: max_body: the maximum is 256MiB; lower it",
        ),
        (
            "[gather]\nallow = [\"10.0.0.0/33\"]\n",
            "gaunt.toml:2: allow: \"10.0.0.0/33\" is not a network; write ADDRESS/BITS, with :PORT \
             or :FIRST-LAST to limit the ports",
        ),
        (
            "[gather]\nremoval_guard = 20.0\n",
            "gaunt.toml:2: removal_guard: 20 is not a share; give a number from 0 to 1",
        ),
        (
            "[[gather.groups]]\nhttp_sd = [{ url = \"ftp://a/\" }]\n",
            "gaunt.toml:2: http_sd: \"ftp://a/\" is not a server URL: it must begin with http:// \
             or https://",
        ),
        (
            "[[gather.groups]]\nname = \"a\"\nbearer_file = \"t\"\ndns_sd = [{ name = \"b\" }]\n",
            "gaunt.toml:1: group \"a\" sends its credentials to every target of http_sd and \
             dns_sd; limit their networks with allow = [\"NETWORK/BITS\"]",
        ),
        (
            "[[gather.groups]]\nname = \"a\"\nbearer_file = \"t\"\nbasic = { user = \"u\", \
             password_file = \"p\" }\n",
            "gaunt.toml:1: group \"a\" has bearer_file and basic; keep one",
        ),
        (
            "[[gather.groups]]\ntls = { cert_file = \"c\" }\n",
            "gaunt.toml:1: group \"\" has one of tls.cert_file and tls.key_file; give both",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(settings_error(text), expected);
    }
}

#[test]
fn missing_file_is_reported_with_its_path() {
    let error = Settings::load_file(Some(Path::new("/nowhere.toml"))).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot read settings file /nowhere.toml: No such file or directory (os error 2); \
         check the path given with --config"
    );
}

#[test]
fn file_that_is_not_utf8_is_reported_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gaunt.toml");
    fs::write(&path, b"[cluster]\nname = \"\xff\"\n").unwrap();
    let error = Settings::load_file(Some(&path)).unwrap_err().to_string();
    assert!(error.ends_with("gaunt.toml: not UTF-8 text; save it as UTF-8"), "{error}");
}

#[test]
fn settings_of_stores_and_peers_that_do_not_fit_are_refused() {
    let table = [
        (
            "[store]\ntenant_header = \"a b\"\n",
            "gaunt.toml:2: store.tenant_header is \"a b\", which is not the name of a header; use \
             letters, digits and -",
        ),
        (
            "[serve.peers]\nurls = []\ntls = { cert_file = \"a\" }\n",
            "gaunt.toml:1: serve.peers has one of tls.cert_file and tls.key_file; give both",
        ),
        ("[store]\nevery = \"5m\"\n", "gaunt.toml:2: store.every is 300s; allowed are 1s to 2m"),
        (
            "[store]\nreplica_label = \"__replica__\"\n",
            "gaunt.toml:2: store.replica_label needs store.replica; set both",
        ),
        (
            "[store]\nreplica_label = \"a-b\"\nreplica = \"a\"\n",
            "gaunt.toml:2: store.replica_label is \"a-b\", which is not a label name; use letters, \
             digits and _",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(settings_error(text), expected);
    }
}

#[test]
fn addresses_with_which_nothing_would_start_are_refused() {
    let table = [
        (
            "[alertmanager]\nleast = \"info\"\nurls = [\"10.0.0.5:9093\"]\n",
            "gaunt.toml:3: \"10.0.0.5:9093\" is not an Alertmanager address; write \
             http://HOST:9093 or https://HOST:9093 in alertmanager.urls",
        ),
        (
            "[serve]\n[serve.peers]\nurls = [\"ftp://a\"]\n",
            "gaunt.toml:3: \"ftp://a\" is not an aggregator; write http://HOST:9771 or \
             https://HOST in serve.peers.urls",
        ),
        ("[store]\nurl = \"a\"\n", "gaunt.toml:2: store.url: \"a\" is not the address of a store"),
        (
            "[prometheus]\nevery = \"30s\"\nurl = \"a\"\n[store]\nurl = \"http://a/\"\n",
            "gaunt.toml:3: prometheus.url: \"a\" is not the address of a Prometheus",
        ),
    ];
    for (text, expected) in table {
        let error = settings_error(text);
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn values_are_refused_with_the_next_step_that_corrects_them() {
    let table = [
        (
            "[gather]\ntargets = [\"a\", \"b[\", \"c:0\"]\n",
            "gaunt.toml:2: targets: host list \"b[\", character 2: unclosed bracket; add \"]\"; \
             host list \"c:0\", character 1: \"0\" is not a port; write a number from 1 to 65535",
        ),
        (
            "[gather]\nperiod = \"1s\"\nperiod = \"2s\"\n",
            "gaunt.toml:3: period: this key is there twice; keep one",
        ),
        (
            "[[serve.tokens]]\nname = \"a\"\nfile = \"a\"\n",
            "gaunt.toml:1: \"role\" is missing in this section; add it",
        ),
        (
            "[[gather.groups]]\nport = 99999\n",
            "gaunt.toml:2: port: 99999 is not a port; give a number from 1 to 65535",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(settings_error(text), expected);
    }
}
