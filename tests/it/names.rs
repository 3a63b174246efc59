//! Names can be searched for: at most two modules share a type name, at most two folders share a file name, and a public
//! type is made of words of the glossary and of standard words.

use std::{
    collections::{BTreeMap, BTreeSet},
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

#[test]
fn public_type_is_made_of_glossary_and_standard_words() {
    let architecture = read_source(&repository_root().join("ARCHITECTURE.md"));
    let (_, glossary) = architecture.split_once("\n## Glossary\n").expect("a glossary");
    let terms = glossary.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    let terms: BTreeSet<String> = terms.flat_map(split_words).collect();
    let standard = read_source(&repository_root().join("tests/fixtures/names/standard_words.txt"));
    let standard: BTreeSet<&str> = standard.split_whitespace().collect();
    let is_term = |word: &str| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        [word, singular, &format!("{word}s")].into_iter().any(|word| terms.contains(word))
    };
    let (mut strange, mut used) = (BTreeMap::new(), BTreeSet::new());
    for path in rust_files(&["src", "exporters"]) {
        let text = read_source(&repository_root().join(&path));
        let public = text.lines().filter(|line| line.trim_start().starts_with("pub "));
        for name in public.filter_map(declared_type) {
            for word in split_name(name).into_iter().filter(|word| !is_term(word)) {
                if standard.contains(word.as_str()) {
                    used.insert(word);
                } else {
                    strange.insert(word, name.to_owned());
                }
            }
        }
    }
    assert!(used.len() > 100, "only {} words were found", used.len());
    assert!(
        strange.is_empty(),
        "words that are neither in the glossary of ARCHITECTURE.md nor in standard_words.txt: {strange:?}"
    );
    let unused: Vec<_> = standard.iter().filter(|word| !used.contains(**word)).collect();
    assert!(unused.is_empty(), "standard words of no public type: {unused:?}");
}

/// The words of a type name: `LostGpuTime` is `lost`, `gpu` and `time`.
fn split_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut().filter(|_| !letter.is_uppercase()) {
            Some(word) => word.push(letter),
            None => words.push(letter.to_lowercase().collect()),
        }
    }
    words
}

/// The words of a glossary term, in lower case.
fn split_words(term: &str) -> Vec<String> {
    let words = term.split([' ', ',', '-', '/']);
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// The type that a line declares; an associated type has the name of its trait's.
fn declared_type(line: &str) -> Option<&str> {
    let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let declared = ["struct ", "enum ", "trait ", "union ", "type "];
    let name = declared.into_iter().find_map(|word| line.strip_prefix(word))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| !is_associated && name.starts_with(char::is_uppercase))
}
