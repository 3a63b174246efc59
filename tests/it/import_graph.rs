//! The imports of a crate, file by file, as `syn` reads them: grouped imports, paths in code, and re-exports followed
//! to the file that defines a name.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Item, ItemMod, ItemUse, Meta, UseTree,
    visit::{self, Visit},
};

use crate::module_boundaries::{read_source, repository_root};

/// A module of a crate by its path from the crate root, such as `["record", "segment"]`.
type ModulePath = Vec<String>;

/// The program modules of one crate, without its tests.
pub(crate) struct CrateImports {
    modules: BTreeMap<ModulePath, ParsedModule>,
}

/// One module: its file, and what it imports.
struct ParsedModule {
    file: PathBuf,
    /// Every path that it names, module paths made absolute; other crates begin with their name.
    paths: BTreeSet<Vec<String>>,
    /// The names that it imports, and the absolute path of each.
    names: BTreeMap<String, Vec<String>>,
    items: BTreeSet<String>,
}

impl CrateImports {
    /// Reads a crate from its root file, as a path from the repository root.
    pub(crate) fn read(root: &str) -> Self {
        let mut imports = Self { modules: BTreeMap::new() };
        let path = repository_root().join(root);
        imports.read_module(&path, path.parent().unwrap(), Vec::new());
        imports
    }

    fn read_module(&mut self, file: &Path, folder: &Path, module: ModulePath) {
        let parsed = syn::parse_file(&read_source(file)).unwrap();
        let mut reader = PathReader {
            module: module.clone(),
            paths: BTreeSet::new(),
            names: BTreeMap::new(),
            children: Vec::new(),
            items: BTreeSet::new(),
        };
        reader.visit_file(&parsed);
        for name in &reader.children {
            let child: ModulePath = module.iter().chain([name]).cloned().collect();
            let child_file = folder.join(name).with_extension("rs");
            self.read_module(&child_file, &folder.join(name), child);
        }
        let file = file.strip_prefix(repository_root()).unwrap().to_owned();
        let PathReader { paths, names, items, .. } = reader;
        self.modules.insert(module, ParsedModule { file, paths, names, items });
    }

    /// Each path that a program file names, with the file.
    pub(crate) fn named_paths(&self) -> impl Iterator<Item = (&Path, &[String])> {
        self.modules.values().flat_map(|module| {
            module.paths.iter().map(|path| (module.file.as_path(), path.as_slice()))
        })
    }

    /// For each file the files of the same crate that define what it names.
    pub(crate) fn file_imports(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let imports = |importer: &ModulePath, module: &ParsedModule| {
            let named = module.paths.iter().filter(|path| path[0] == "crate");
            let defined = named.filter_map(|path| self.defining_module(&path[1..], 0));
            let others = defined.filter(|other| other != importer);
            others.map(|other| self.modules[&other].file.as_path()).collect()
        };
        self.modules
            .iter()
            .map(|(importer, module)| (module.file.as_path(), imports(importer, module)))
            .collect()
    }

    /// The module that defines what an absolute path names, re-exports followed.
    fn defining_module(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        let mut prefix_length = path.len();
        while !self.modules.contains_key(&path[..prefix_length]) {
            prefix_length = prefix_length.checked_sub(1)?;
        }
        let module = &self.modules[&path[..prefix_length]];
        let Some(name) = path.get(prefix_length) else { return Some(path.to_vec()) };
        match module.names.get(name) {
            Some(target) if depth < 8 && !module.items.contains(name) => {
                // No module of this crate defines a name from another crate.
                let inner = (target[0] == "crate").then(|| &target[1..])?;
                self.defining_module(inner, depth + 1)
            }
            _ => Some(path[..prefix_length].to_vec()),
        }
    }

    /// Files that import each other in a loop. What a module takes from those below it does not count: a module
    /// composes its parts.
    pub(crate) fn circles(&self) -> Vec<Vec<&Path>> {
        let imports = self.file_imports();
        let module_of: BTreeMap<&Path, &ModulePath> =
            self.modules.iter().map(|(path, module)| (module.file.as_path(), path)).collect();
        let composes = |from: &Path, to: &Path| module_of[to].starts_with(module_of[from]);
        let reach: BTreeMap<&Path, BTreeSet<&Path>> = imports
            .keys()
            .map(|from| {
                let mut reached = BTreeSet::new();
                let mut open = vec![*from];
                while let Some(file) = open.pop() {
                    let next = imports[file].iter().filter(|to| !composes(file, to));
                    open.extend(next.filter(|to| reached.insert(**to)).copied());
                }
                (*from, reached)
            })
            .collect();
        let mut circles: BTreeSet<Vec<&Path>> = BTreeSet::new();
        for (file, reached) in reach.iter().filter(|(file, reached)| reached.contains(*file)) {
            let back = reached.iter().filter(|other| reach[*other].contains(file)).copied();
            circles.insert(back.collect());
        }
        circles.into_iter().collect()
    }
}

/// Reads the paths of one file.
struct PathReader {
    module: ModulePath,
    paths: BTreeSet<Vec<String>>,
    names: BTreeMap<String, Vec<String>>,
    children: Vec<String>,
    items: BTreeSet<String>,
}

impl PathReader {
    /// The absolute form of a path, if it names a module or a crate.
    fn absolute_path(&self, path: &[String]) -> Option<Vec<String>> {
        let above = path.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (self.module.clone(), &path[1..]),
            "super" => {
                let remaining = self.module.len().checked_sub(above)?;
                (self.module[..remaining].to_vec(), &path[above..])
            }
            child if self.children.iter().any(|name| name == child) => (self.module.clone(), path),
            name => {
                if let Some(target) = self.names.get(name) {
                    return Some(target.iter().chain(&path[1..]).cloned().collect());
                }
                // A crate, and not a type of the prelude.
                return name.starts_with(char::is_lowercase).then(|| path.to_vec());
            }
        };
        Some(["crate".to_owned()].into_iter().chain(base).chain(rest.iter().cloned()).collect())
    }

    fn read_use(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.read_use(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(prefix, tree);
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                let module_name = prefix.last().cloned().unwrap_or_default();
                self.add_name(&module_name, &prefix.clone());
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.add_name(&name, &[prefix.clone(), vec![name.clone()]].concat());
            }
            UseTree::Rename(rename) => {
                let path = [prefix.clone(), vec![rename.ident.to_string()]].concat();
                self.add_name(&rename.rename.to_string(), &path);
            }
            UseTree::Glob(_) => {
                let path = self.absolute_path(prefix);
                self.paths.extend(path);
            }
        }
    }

    fn add_name(&mut self, name: &str, path: &[String]) {
        let Some(path) = self.absolute_path(path) else { return };
        self.paths.insert(path.clone());
        self.names.insert(name.to_owned(), path);
    }
}

impl<'ast> Visit<'ast> for PathReader {
    fn visit_file(&mut self, file: &'ast syn::File) {
        let program = || file.items.iter().filter(|item| !is_test(item_attributes(item)));
        for item in program() {
            // A file of another folder belongs to the program there.
            if let Item::Mod(ItemMod { ident, content: None, attrs, .. }) = item
                && !attrs.iter().any(|attribute| attribute.path().is_ident("path"))
            {
                self.children.push(ident.to_string());
            }
            self.items.extend(item_name(item));
        }
        // Imports of modules come before names below them are read.
        for item in program() {
            if let Item::Use(item) = item {
                self.read_use(&mut Vec::new(), &item.tree);
            }
        }
        program().for_each(|item| self.visit_item(item));
    }

    fn visit_item_use(&mut self, _: &'ast ItemUse) {}

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            let path = self.absolute_path(&parts);
            self.paths.extend(path);
        }
        visit::visit_path(self, path);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test"
                || condition.starts_with("any (test")
                || condition.starts_with("any(test")
        }
        _ => false,
    })
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Static(it) => &it.ident,
        Item::Struct(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        _ => return None,
    };
    Some(name.to_string())
}
