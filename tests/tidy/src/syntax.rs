use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::{files, root};

/// A parsed Rust file of the workspace, without test code.
pub struct SourceFile {
    /// The crate's directory, relative to the root: `services/pleg`, `services/shared/kit`.
    pub krate: String,
    /// The file's path, relative to the root.
    pub path: PathBuf,
    /// Its module within the crate: `["core", "plan"]`, empty for the crate root.
    pub module: Vec<String>,
    /// The syntax tree.
    pub syntax: syn::File,
}

/// All files below `src/` of the crates in these directories, without tests.
///
/// # Panics
/// If a file cannot be parsed.
pub fn sources(dirs: &[&str]) -> Vec<SourceFile> {
    let mut found = Vec::new();
    for dir in dirs {
        for path in files(&root().join(dir), "rs") {
            let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
            found.extend(source(path));
        }
    }
    found
}

fn source(path: PathBuf) -> Option<SourceFile> {
    let text = path.to_str()?;
    let (krate, inner) = text.split_once("/src/")?;
    let module = module_of(inner)?;
    let code = fs::read_to_string(root().join(&path)).ok()?;
    let mut syntax = syn::parse_file(&code)
        .unwrap_or_else(|error| panic!("{} is not Rust: {error}", path.display()));
    syntax.items.retain(|item| !is_test(attributes(item)));
    Some(SourceFile {
        krate: krate.to_owned(),
        module,
        syntax,
        path,
    })
}

/// The module path of a file below `src/`; `None` for tests, binaries and generated code.
fn module_of(inner: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = inner.trim_end_matches(".rs").split('/').collect();
    let is_test = |part: &&str| *part == "tests" || part.ends_with("_tests");
    if parts.iter().any(is_test) || matches!(parts.first(), Some(&"bin" | &"gen")) {
        return None;
    }
    let named = match parts.split_last()? {
        (&"mod", rest) => rest,
        (&("lib" | "main"), []) => &[],
        _ => &parts[..],
    };
    Some(named.iter().map(|part| (*part).to_owned()).collect())
}

/// The attributes of an item that may be test code.
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|ident| ident == "test")
    })
}

impl SourceFile {
    /// Names of the types defined in the file, not by macros.
    pub fn types(&self) -> Vec<String> {
        let names = self.syntax.items.iter().filter_map(|item| match item {
            syn::Item::Struct(item) => Some(item.ident.to_string()),
            syn::Item::Enum(item) => Some(item.ident.to_string()),
            syn::Item::Trait(item) => Some(item.ident.to_string()),
            syn::Item::Type(item) => Some(item.ident.to_string()),
            syn::Item::Union(item) => Some(item.ident.to_string()),
            _ => None,
        });
        names.collect()
    }

    /// Names of the types with inherent `impl` blocks in the file.
    pub fn inherent_impls(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for item in &self.syntax.items {
            if let syn::Item::Impl(item) = item
                && item.trait_.is_none()
                && let syn::Type::Path(of) = &*item.self_ty
                && let Some(last) = of.path.segments.last()
            {
                found.insert(last.ident.to_string());
            }
        }
        found
    }

    /// Paths within the crate that the file refers to, relative to the crate root.
    pub fn references(&self) -> BTreeSet<Vec<String>> {
        let mut paths = Paths::default();
        paths.visit_file(&self.syntax);
        let absolute = paths.found.into_iter().filter_map(|path| {
            let (first, rest) = path.split_first()?;
            let mut from = self.module.clone();
            let mut rest = rest;
            match first.as_str() {
                "crate" => from.clear(),
                "self" => {}
                "super" => {
                    from.pop()?;
                    while let Some(("super", more)) =
                        rest.split_first().map(|(a, b)| (a.as_str(), b))
                    {
                        from.pop()?;
                        rest = more;
                    }
                }
                _ => return None,
            }
            from.extend(rest.iter().cloned());
            Some(from)
        });
        absolute.collect()
    }
}

/// Collects paths, including those of `use` trees.
#[derive(Default)]
struct Paths {
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    fn tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| {
            let mut path = prefix.to_vec();
            path.push(ident.to_string());
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => {
                self.found.insert(with(&name.ident));
            }
            syn::UseTree::Rename(name) => {
                self.found.insert(with(&name.ident));
            }
            syn::UseTree::Glob(_) => {
                self.found.insert(prefix.to_vec());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(prefix, tree);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        self.found.insert(names.collect());
        syn::visit::visit_path(self, path);
    }
}

/// Cycles of sibling modules, one line each. A module includes its descendants; a parent and its child
/// may refer to each other.
pub fn circles(sources: &[SourceFile]) -> Vec<String> {
    let crates: BTreeSet<&str> = sources.iter().map(|file| file.krate.as_str()).collect();
    let mut found = Vec::new();
    for krate in crates {
        let of_crate: Vec<_> = sources.iter().filter(|file| file.krate == krate).collect();
        let modules: BTreeSet<&[String]> =
            of_crate.iter().map(|file| file.module.as_slice()).collect();
        let mut edges = BTreeSet::new();
        for file in &of_crate {
            for path in file.references() {
                // The deepest module that is a prefix of the path.
                let target = (0..=path.len())
                    .rev()
                    .map(|length| &path[..length])
                    .find(|start| modules.contains(start));
                edges.extend(target.and_then(|target| sibling_edge(&file.module, target)));
            }
        }
        for group in groups(&edges) {
            found.push(format!("{krate}/src: {}", group.join(" <-> ")));
        }
    }
    found
}

/// The two sibling modules that a reference from one module to another connects.
fn sibling_edge(from: &[String], to: &[String]) -> Option<(String, String)> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let at = |path: &[String]| path.get(..=common).map(|path| path.join("/"));
    Some((at(from)?, at(to)?))
}

/// Strongly connected components of two or more nodes.
fn groups(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut queue = vec![from.to_owned()];
        while let Some(at) = queue.pop() {
            for (_, to) in edges.iter().filter(|(from, _)| *from == at) {
                if seen.insert(to.clone()) {
                    queue.push(to.clone());
                }
            }
        }
        seen
    };
    let nodes: BTreeSet<&String> = edges.iter().map(|(from, _)| from).collect();
    let mut grouped: BTreeSet<String> = BTreeSet::new();
    let mut found = Vec::new();
    for node in nodes {
        let reached = reach(node);
        if grouped.contains(node) || !reached.contains(node) {
            continue;
        }
        let group: Vec<String> = reached
            .into_iter()
            .filter(|other| other == node || reach(other).contains(node))
            .collect();
        grouped.extend(group.iter().cloned());
        found.push(group);
    }
    found
}

/// The documentation lines of a file with their numbers, without the marker.
pub fn doc_lines(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))?;
        Some((number + 1, doc.trim().to_owned()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(module: &str, code: &str) -> SourceFile {
        let names = module.split('/').filter(|name| !name.is_empty());
        SourceFile {
            krate: "x".to_owned(),
            path: PathBuf::from(module),
            module: names.map(str::to_owned).collect(),
            syntax: syn::parse_file(code).expect("Rust"),
        }
    }

    #[test]
    fn modules_are_named_after_their_files() {
        let of = |inner| module_of(inner).map(|parts| parts.join("/"));
        assert_eq!(of("lib.rs").as_deref(), Some(""));
        assert_eq!(of("core/mod.rs").as_deref(), Some("core"));
        assert_eq!(of("core/plan.rs").as_deref(), Some("core/plan"));
        assert_eq!(of("core/tests/plan.rs"), None);
        assert_eq!(of("core/plan_tests.rs"), None);
    }

    #[test]
    fn circles_of_siblings_are_found_and_parents_left_out() {
        let root = file("", "mod a; mod b; mod c;");
        let a = file("a", "use crate::b::{B, C}; mod inner;");
        let inner = file("a/inner", "use super::A; use crate::c;");
        let b = file("b", "fn f() { crate::a::inner::g() }");
        let c = file("c", "use super::Root;");
        let sources = [root, a, inner, b, c];
        assert_eq!(circles(&sources), ["x/src: a <-> b"]);
        assert_eq!(circles(&sources[..3]), [""; 0]);
    }

    #[test]
    fn test_code_does_not_count() {
        let a = file("a", "use crate::b;");
        let b = file("b", "#[cfg(test)] mod tests { use crate::a; }");
        assert_eq!(circles(&[a, b]), [""; 0]);
    }
}
