//! Metadata of the packages: every file that they install exists, and deb and rpm install the same.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The packages with the folders of their manifests.
const PACKAGES: [(&str, &str); 3] =
    [("gaunt", "."), ("gaunt-node", "exporters/node"), ("gaunt-probe", "exporters/probe")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The metadata of a package for one tool: `deb` or `generate-rpm`.
fn read_metadata(folder: &str, tool: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&text).unwrap();
    manifest["package"]["metadata"][tool].as_table().unwrap().clone()
}

/// Checks that a file of the source exists; what the build makes is below `target`.
fn check_source(base: &Path, source: &str) {
    if source.trim_start_matches("../").starts_with("target/") {
        return;
    }
    let path = base.join(source);
    let Some((folder, suffix)) = source.split_once('*') else {
        assert!(path.is_file(), "{} does not exist", path.display());
        return;
    };
    let mut entries = fs::read_dir(base.join(folder)).unwrap();
    let found = entries.any(|entry| entry.unwrap().path().to_string_lossy().ends_with(suffix));
    assert!(found, "nothing matches {source}");
}

/// Source and destination of every file, without the folders in which the sides differ.
fn list_files(assets: &[toml::Value]) -> BTreeSet<(String, String)> {
    let field = |asset: &toml::Value, index: usize, key: &str| {
        let value = asset.as_array().map_or_else(|| &asset[key], |array| &array[index]);
        value.as_str().unwrap().trim_start_matches("../").trim_start_matches('/').to_owned()
    };
    let files = assets.iter().map(|asset| {
        let destination = field(asset, 1, "dest");
        // Debian's zsh reads other completions than the one of the Red Hat family.
        let destination = destination.replace("zsh/vendor-completions", "zsh/site-functions");
        (field(asset, 0, "source"), destination)
    });
    // cargo-deb installs the unit by its own table.
    files.filter(|(_, to)| !to.starts_with("usr/lib/systemd/")).collect()
}

#[test]
fn every_file_of_the_packages_exists() {
    for (package, folder) in PACKAGES {
        let deb = read_metadata(folder, "deb");
        let base = root().join(folder);
        for asset in deb["assets"].as_array().unwrap() {
            let source = asset[0].as_str().unwrap();
            // cargo-deb finds the programs of the workspace under this name.
            if source != format!("target/release/{package}") {
                check_source(&base, source);
            }
        }
        // cargo-generate-rpm reads from the root of the workspace.
        for asset in read_metadata(folder, "generate-rpm")["assets"].as_array().unwrap() {
            check_source(&root(), asset["source"].as_str().unwrap());
        }
        let license = deb["license-file"][0].as_str().unwrap();
        assert!(base.join(license).is_file(), "{license}");
        let units = deb["systemd-units"].as_table().unwrap();
        let unit = format!("{}.service", units["unit-name"].as_str().unwrap());
        let path = base.join(units["unit-scripts"].as_str().unwrap()).join(unit);
        assert!(path.is_file(), "{} does not exist", path.display());
    }
}

#[test]
fn deb_and_rpm_install_the_same_files() {
    for (package, folder) in PACKAGES {
        let files = |tool| list_files(read_metadata(folder, tool)["assets"].as_array().unwrap());
        // cargo-deb makes the file of the licence from a field of its own.
        let license = format!("usr/share/licenses/{package}/LICENSE");
        let mut of_rpm = files("generate-rpm");
        assert!(of_rpm.remove(&("LICENSE".to_owned(), license)), "{package}");
        assert_eq!(files("deb"), of_rpm, "{package}");
    }
}

#[test]
fn settings_are_kept_when_a_package_is_replaced() {
    for (package, folder) in PACKAGES {
        let deb = read_metadata(folder, "deb");
        let listed: BTreeSet<String> = deb
            .get("conf-files")
            .map(|files| files.clone().try_into::<Vec<String>>().unwrap())
            .into_iter()
            .flatten()
            .collect();
        let rpm = read_metadata(folder, "generate-rpm");
        let assets = rpm["assets"].as_array().unwrap().clone();
        let settings: BTreeSet<String> = assets
            .iter()
            .filter(|asset| asset["dest"].as_str().unwrap().starts_with("/etc/"))
            .map(|asset| {
                assert_eq!(asset["config"].as_str(), Some("noreplace"), "{package}");
                asset["dest"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(listed, settings, "{package}");
    }
}

#[test]
fn containerfile_builds_this_version_with_its_toolchain() {
    let text = fs::read_to_string(root().join("config/packaging/Containerfile")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("org.opencontainers.image.version=\"{version}\"")), "{version}");
    assert!(text.contains(&format!("-t localhost/gaunt:{version} .")), "{version}");
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let toolchain: toml::Table = toml::from_str(&toolchain).unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    let minor = channel.rsplit_once('.').unwrap().0;
    assert!(text.contains(&format!("docker.io/library/rust:{minor}-")), "{channel}");
}
