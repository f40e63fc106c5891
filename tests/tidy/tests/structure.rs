//! The structure of crates: no module cycles, methods of a type together, cores without wire types.

use std::collections::{BTreeMap, BTreeSet};

use polylet_tidy::syntax::{circles, sources};
use polylet_tidy::{RANKS, code_lines, files, root};

/// Types with methods in several files, with the reason.
const SPREAD: &[(&str, &str)] = &[(
    "RuntimeClient",
    "one method per call of the CRI, without state; a file per part of the API",
)];

#[test]
fn sibling_modules_have_no_cycles() {
    let found = circles(&sources(&["services"]));
    assert!(found.is_empty(), "{found:#?}");
}

/// Inherent methods of a type are in its own file and at most one more: a type whose methods are
/// spread over a crate has several responsibilities.
#[test]
fn methods_of_a_type_are_in_two_files_at_most() {
    let sources = sources(&["services"]);
    let mut definitions: BTreeMap<(&str, String), u32> = BTreeMap::new();
    let mut files_of: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for file in &sources {
        for name in file.types() {
            *definitions.entry((&file.krate, name)).or_default() += 1;
        }
        for name in file.inherent_impls() {
            if SPREAD.iter().any(|(spread, _)| *spread == name) {
                continue;
            }
            let path = file.path.display().to_string();
            files_of
                .entry((&file.krate, name))
                .or_default()
                .insert(path);
        }
    }
    files_of.retain(|of, files| files.len() > 2 && definitions.get(of).is_none_or(|n| *n == 1));
    assert!(files_of.is_empty(), "{files_of:#?}");
}

/// Cores use domain types only; `convert.rs` converts to and from wire types.
#[test]
fn cores_do_not_use_wire_types() {
    let mut wrong = Vec::new();
    for (service, _) in RANKS {
        let core = root().join("services").join(service).join("src/core");
        for file in files(&core, "rs") {
            for (number, line) in code_lines(&file) {
                if line.contains("polylet_wire") {
                    wrong.push(format!("{}:{number}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each role of a service is in the file of the same name everywhere.
#[test]
fn services_have_the_same_layout() {
    let mut wrong = Vec::new();
    for (service, _) in RANKS {
        let src = root().join("services").join(service).join("src");
        for needed in ["main.rs", "lib.rs"] {
            if !src.join(needed).exists() {
                wrong.push(format!("{service} has no {needed}"));
            }
        }
    }
    for file in sources(&["services"]) {
        let name = file.path.file_name().and_then(|name| name.to_str());
        for (role, expected) in [("Input", "input.rs"), ("EventLoop", "run.rs")] {
            if file.types().iter().any(|defined| defined == role) && name != Some(expected) {
                wrong.push(format!(
                    "{role} is in {}, not {expected}",
                    file.path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
