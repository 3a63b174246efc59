//! The manifests that the Helm chart renders for four sets of values: their names meet, and gaunt accepts what they configure.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    alerting_end_to_end::read_shipped,
    binaries::program_path,
    test_process::{RunToEnd, debian_program},
};

/// The sets of values in `config/kubernetes/chart/ci`.
const VALUE_SETS: [&str; 4] = ["default", "mixed", "secured", "single"];

fn kubernetes_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kubernetes")
}

/// The rendered manifests of a set.
fn read_manifests(set: &str) -> Vec<Value> {
    let path = kubernetes_folder().join(format!("rendered/{set}.yaml"));
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The manifests of one kind.
fn manifests_of_kind<'a>(manifests: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    manifests.iter().filter(move |manifest| manifest["kind"] == kind)
}

/// The pods of stateful and daemon sets.
fn pod_templates(manifests: &[Value]) -> Vec<&Value> {
    ["StatefulSet", "DaemonSet"]
        .iter()
        .flat_map(|kind| manifests_of_kind(manifests, kind))
        .map(|owner| &owner["spec"]["template"])
        .collect()
}

/// Whether a selector chooses the labels of a pod.
fn is_selected(pod: &Value, selector: &Value) -> bool {
    let selector = selector.as_object().unwrap();
    !selector.is_empty()
        && selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
}

/// The settings and web configurations of a set: those of gaunt-node, then those of the aggregators.
pub(crate) fn read_setting_files(set: &str) -> [String; 4] {
    let manifests = read_manifests(set);
    let file = |name: &str, beside: &str| {
        let mut maps = manifests_of_kind(&manifests, "ConfigMap");
        let map = maps.find(|map| map["data"][beside].is_string()).unwrap();
        map["data"][name].as_str().unwrap_or_default().to_owned()
    };
    [
        file("node.toml", "node.toml"),
        file("web.yml", "node.toml"),
        file("gaunt.toml", "gaunt.toml"),
        file("web.yml", "gaunt.toml"),
    ]
}

#[test]
fn selectors_and_ports_of_manifests_meet_a_pod() {
    for set in VALUE_SETS {
        let manifests = read_manifests(set);
        let pods = pod_templates(&manifests);
        for manifest in &manifests {
            let spec = &manifest["spec"];
            let (selector, ports): (&Value, Vec<&Value>) = match manifest["kind"].as_str().unwrap()
            {
                "Service" => {
                    let ports = spec["ports"].as_array().unwrap();
                    (&spec["selector"], ports.iter().map(|port| &port["targetPort"]).collect())
                }
                "PodMonitor" => {
                    let ports = spec["podMetricsEndpoints"].as_array().unwrap();
                    let ports = ports.iter().map(|port| &port["port"]).collect();
                    (&spec["selector"]["matchLabels"], ports)
                }
                "NetworkPolicy" => {
                    let ports = &spec["ingress"][0]["ports"][0]["port"];
                    (&spec["podSelector"]["matchLabels"], vec![ports])
                }
                "StatefulSet" | "DaemonSet" | "PodDisruptionBudget" => {
                    (&spec["selector"]["matchLabels"], Vec::new())
                }
                _ => continue,
            };
            let mut chosen = pods.iter().filter(|pod| is_selected(pod, selector)).peekable();
            assert!(chosen.peek().is_some(), "{set}: no pod for {manifest}");
            for pod in chosen {
                let named = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
                for port in &ports {
                    assert!(named.iter().any(|it| it["name"] == **port), "{set}: {manifest}");
                }
            }
        }
    }
}

#[test]
fn volumes_of_manifests_exist_and_containers_have_no_privileges() {
    for set in VALUE_SETS {
        let manifests = read_manifests(set);
        for pod in pod_templates(&manifests) {
            let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
            let volumes = spec["volumes"].as_array().unwrap();
            for mount in container["volumeMounts"].as_array().unwrap() {
                assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
            }
            let projected = volumes.iter().map(|volume| &volume["projected"]["sources"][0]);
            for config in volumes.iter().chain(projected).map(|volume| &volume["configMap"]["name"])
            {
                let mut maps = manifests_of_kind(&manifests, "ConfigMap");
                let exists = maps.any(|map| map["metadata"]["name"] == *config);
                assert!(config.is_null() || exists, "{set}: {config}");
            }
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{set}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{set}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{set}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{set}");
            assert_eq!(spec["automountServiceAccountToken"], false, "{set}");
        }
    }
}

#[test]
fn settings_of_manifests_are_accepted_and_name_the_service_of_the_nodes() {
    for set in VALUE_SETS {
        let manifests = read_manifests(set);
        let map = manifests_of_kind(&manifests, "ConfigMap")
            .find_map(|map| map["data"]["gaunt.toml"].as_str())
            .unwrap();
        let settings = gaunt::settings::Settings::parse(map, Path::new("gaunt.toml"));
        let settings = settings.unwrap_or_else(|error| panic!("{set}: {error}"));
        let aggregators = manifests_of_kind(&manifests, "StatefulSet").next().unwrap();
        let port = &aggregators["spec"]["template"]["spec"]["containers"][0]["ports"][0];
        assert_eq!(port["containerPort"], settings.listen.port(), "{set}");
        let headless = manifests_of_kind(&manifests, "Service")
            .find(|service| service["spec"]["clusterIP"] == "None")
            .unwrap();
        let name = format!("{}.gaunt.svc", headless["metadata"]["name"].as_str().unwrap());
        assert!(map.contains(&format!("dns_sd = [{{ name = \"{name}\", type = \"A\"")), "{map}");
        let node_port = &headless["spec"]["ports"][0]["port"];
        assert!(map.contains(&format!("\nport = {node_port}\n")), "{set}: {map}");
        let is_secured = set != "single";
        assert_eq!(settings.token_file.is_some(), is_secured, "{set}");
        assert_eq!(settings.web_config.is_some(), is_secured, "{set}");
        assert_eq!(settings.roles.read_needs_role, is_secured, "{set}");
        let https = map.contains("scheme = \"https\"");
        assert_eq!(https, is_secured, "{set}: {map}");
        // Peers are the pods of the set, at names that its service gives them and that they accept.
        let service = aggregators["spec"]["serviceName"].as_str().unwrap();
        let mut services = manifests_of_kind(&manifests, "Service");
        let service_exists = services.any(|other| {
            other["metadata"]["name"] == service && other["spec"]["clusterIP"] == "None"
        });
        assert!(service_exists, "{set}: {service}");
        let peers = settings.peers.urls.clone();
        let name = aggregators["metadata"]["name"].as_str().unwrap();
        let count = if is_secured { aggregators["spec"]["replicas"].as_u64().unwrap() } else { 0 };
        let expected =
            (0..count).map(|pod| format!("https://{name}-{pod}.{service}.gaunt.svc:9771"));
        assert_eq!(peers, expected.collect::<Vec<_>>(), "{set}");
        for peer in &peers {
            let host = peer.trim_start_matches("https://").trim_end_matches(":9771");
            assert!(settings.names.iter().any(|name| name == host), "{set}: {host}");
        }
    }
}

#[test]
fn exporter_accepts_arguments_and_settings_of_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = read_manifests("single");
    let settings = manifests_of_kind(&manifests, "ConfigMap")
        .find_map(|map| map["data"]["node.toml"].as_str())
        .unwrap();
    let file = folder.path().join("node.toml");
    fs::write(&file, settings).unwrap();
    let daemons = manifests_of_kind(&manifests, "DaemonSet").next().unwrap();
    let container = &daemons["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| {
        let argument = argument.as_str().unwrap().replace("=/host/", "=/");
        argument.replace("/etc/gaunt/node.toml", file.to_str().unwrap())
    });
    let program = program_path(container["command"][0].as_str().unwrap());
    let output = Command::new(program)
        .args(arguments)
        .args(["--once", "--disable", "nvml,kubelet"])
        .run_to_end();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("$(NODE_NAME)"), "{errors}");
}

/// The image has no shell, and where nothing can be measured the pod starts.
#[test]
fn init_container_of_the_example_runs_gaunt_probe_of_the_image() {
    let text = fs::read_to_string(kubernetes_folder().join("init-container.yaml")).unwrap();
    let pod: Value = serde_saphyr::from_str(&text).unwrap();
    let values = fs::read_to_string(kubernetes_folder().join("chart/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let container = &pod["spec"]["initContainers"][0];
    let repository = values["image"]["repository"].as_str().unwrap();
    assert_eq!(container["image"], format!("{repository}:{}", env!("CARGO_PKG_VERSION")));
    let words: Vec<&str> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(words[0], "gaunt-probe");
    let output = Command::new(program_path(words[0]))
        .args(&words[1..])
        .args([
            "--cuda-library",
            "/nowhere/libcuda.so",
            "--nvml-library",
            "/nowhere/libnvidia-ml.so",
        ])
        .run_to_end();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.starts_with("gaunt-probe: "), "{errors}");
}

#[test]
fn rules_of_the_example_for_prometheus_operator_are_shipped_ones() {
    let path = kubernetes_folder().join("prometheus-operator.yaml");
    let example: Vec<Value> =
        serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
    let rules = read_shipped("config/prometheus/rules/gaunt/findings.yml");
    let shipped: Value = serde_saphyr::from_str(&rules).unwrap();
    let rules_of = |groups: &Value| -> Vec<Value> {
        let groups = groups.as_array().unwrap().iter();
        groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    };
    let shipped = rules_of(&shipped["groups"]);
    let copied: Vec<Value> = manifests_of_kind(&example, "PrometheusRule")
        .flat_map(|manifest| rules_of(&manifest["spec"]["groups"]))
        .collect();
    assert!(copied.len() > 1);
    for mut rule in copied {
        // A block ends with a line break.
        let expression = rule["expr"].as_str().unwrap().trim().to_owned();
        rule["expr"] = expression.into();
        let is_same = |other: &Value| {
            ["alert", "record"].iter().all(|key| other[key] == rule[key])
                && other["expr"].as_str().unwrap().trim() == rule["expr"]
                && other["annotations"]["summary"] == rule["annotations"]["summary"]
        };
        assert!(shipped.iter().any(is_same), "{rule}");
    }
}

#[test]
fn chart_contains_every_rule_file_and_dashboard() {
    let chart = kubernetes_folder().join("chart");
    for (link, target, extension) in [
        ("files/rules", "config/prometheus/rules/gaunt", "yml"),
        ("files/dashboards", "dashboards", "json"),
    ] {
        let link = fs::canonicalize(chart.join(link)).unwrap();
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
        assert_eq!(link, fs::canonicalize(target).unwrap());
        let mut files = fs::read_dir(&link).unwrap().map(|entry| entry.unwrap().path());
        assert!(files.any(|path| path.extension().is_some_and(|it| it == extension)));
    }
    for set in VALUE_SETS {
        let values = fs::read_to_string(chart.join(format!("ci/{set}-values.yaml"))).unwrap();
        let _: Option<Value> = serde_saphyr::from_str(&values).unwrap();
    }
    let version: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart.join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(version["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// A rendering of an older chart or version fails here: run `config/kubernetes/render`.
#[test]
fn manifests_are_those_of_this_version_and_its_settings() {
    for set in VALUE_SETS {
        let manifests = read_manifests(set);
        for manifest in &manifests {
            let version = &manifest["metadata"]["labels"]["app.kubernetes.io/version"];
            if version.is_string() {
                assert_eq!(version, env!("CARGO_PKG_VERSION"), "{set}: {}", manifest["kind"]);
            }
        }
        let [node, _, aggregator, _] = read_setting_files(set);
        for (kind, settings) in [("DaemonSet", node), ("StatefulSet", aggregator)] {
            let mut checksum = debian_program("sha256sum");
            let mut checksum =
                checksum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // The chart computes it without the line feed at the end.
            let settings = settings.trim_end_matches('\n');
            checksum.stdin.take().unwrap().write_all(settings.as_bytes()).unwrap();
            let output = checksum.wait_with_output().unwrap();
            let digest = String::from_utf8(output.stdout).unwrap();
            for owner in manifests_of_kind(&manifests, kind) {
                let annotated =
                    &owner["spec"]["template"]["metadata"]["annotations"]["gaunt/settings"];
                assert!(digest.starts_with(annotated.as_str().unwrap()), "{set} {kind}: {digest}");
            }
        }
    }
}

/// A chart that was changed and not rendered fails here: run `config/kubernetes/render`.
#[test]
fn manifests_are_rendered_from_this_chart() {
    let chart = kubernetes_folder().join("chart");
    let listed = fs::read_to_string(kubernetes_folder().join("rendered/chart.sha256")).unwrap();
    let mut command = debian_program("sh");
    command
        .current_dir(&chart)
        .args(["-c", "find . -type f ! -path './files/*' | LC_ALL=C sort | xargs sha256sum"]);
    let output = command.run_to_end();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), listed);
}
