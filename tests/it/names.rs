//! Names can be searched for: at most two modules share a type name, and at most two folders share a file name.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::module_boundaries::{read_source, repository_root, rust_files};

/// The maximum modules that share a type name, and folders that share a file name.
const MAX_SHARED: usize = 2;

/// File names with a meaning for Cargo or for their module.
const STANDARD_FILES: [&str; 3] = ["lib.rs", "main.rs", "tests.rs"];

/// Associated types of the standard library's traits.
const STANDARD_TYPES: [&str; 6] = ["Error", "Item", "Output", "Target", "IntoIter", "Err"];

#[test]
fn type_name_is_shared_by_two_modules_at_most() {
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in rust_files(&["src", "exporters", "tests"]) {
        let text = read_source(&repository_root().join(&path));
        let mut names: Vec<&str> = text.lines().filter_map(declared_type).collect();
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().filter(|name| !STANDARD_TYPES.contains(name)) {
            modules.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    assert!(modules.len() > 500, "only {} types were found", modules.len());
    let shared: Vec<_> = modules.iter().filter(|(_, paths)| paths.len() > MAX_SHARED).collect();
    assert!(shared.is_empty(), "names of several types: {shared:#?}");
}

#[test]
fn file_name_is_shared_by_two_folders_at_most() {
    let mut folders: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in rust_files(&["src", "exporters", "tests"]) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !STANDARD_FILES.contains(&name.as_str()) {
            folders.entry(name).or_default().push(path.parent().unwrap_or(Path::new("")).into());
        }
    }
    let shared: Vec<_> = folders.iter().filter(|(_, paths)| paths.len() > MAX_SHARED).collect();
    assert!(shared.is_empty(), "names of several files: {shared:#?}");
}

/// The type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let declared = ["struct ", "enum ", "trait ", "union ", "type "];
    let name = declared.into_iter().find_map(|word| line.strip_prefix(word))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| name.starts_with(char::is_uppercase))
}
