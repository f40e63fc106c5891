//! The source: cores are pure, crate roots are documented, dependencies are justified, files are short.

use std::ffi::OsStr;
use std::fs;

use polylet_tidy::{RANKS, code_lines, files, root};

/// Terms forbidden in a core: async, clocks, I/O, randomness.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "tonic",
    "std::fs",
    "std::net",
    "std::io",
    "std::process",
    "std::env",
    "std::thread",
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "Instant::",
    "rand::",
    "tracing::",
    "println!",
    "rustix",
];

/// Whether a line has a term that does not begin within a word: `Monotonic` is not `tonic`.
fn contains_term(line: &str, term: &str) -> bool {
    let within_word = |at: usize| line[..at].ends_with(|c: char| c.is_ascii_lowercase());
    line.match_indices(term).any(|(at, _)| !within_word(at))
}

#[test]
fn cores_are_pure() {
    let mut wrong = Vec::new();
    let mut cores: Vec<_> = RANKS
        .iter()
        .map(|(service, _)| root().join("services").join(service).join("src/core"))
        .collect();
    cores.push(root().join("services/shared/model/src"));
    for core in cores {
        assert!(
            !files(&core, "rs").is_empty(),
            "{} is empty",
            core.display()
        );
        for file in files(&core, "rs") {
            // `tests.rs`, and `x_tests.rs` beside `x.rs`.
            let is_tests =
                |part: &OsStr| part == "tests" || part.as_encoded_bytes().ends_with(b"tests.rs");
            if file.iter().any(is_tests) {
                continue;
            }
            for (number, line) in code_lines(&file) {
                for word in IMPURE.iter().filter(|word| contains_term(&line, word)) {
                    wrong.push(format!("{}:{number}: {word}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn crate_roots_are_documented() {
    for manifest in files(&root(), "toml") {
        let Some(dir) = manifest
            .parent()
            .filter(|_| manifest.ends_with("Cargo.toml"))
        else {
            continue;
        };
        let roots = ["src/lib.rs", "src/main.rs"].map(|name| dir.join(name));
        for path in roots.iter().filter(|path| path.exists()) {
            let text = fs::read_to_string(path).expect("a crate root");
            assert!(
                text.starts_with("//!"),
                "{} has no documentation",
                path.display()
            );
        }
    }
}

#[test]
fn every_dependency_is_justified() {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace manifest");
    let section = text.split("[workspace.dependencies]").nth(1).unwrap_or("");
    let mut explained = false;
    for line in section.lines().take_while(|line| !line.starts_with('[')) {
        let line = line.trim();
        if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else {
            let own = line.starts_with("polylet-");
            assert!(own || explained, "no reason given for: {line}");
        }
    }
}

#[test]
fn top_level_has_only_expected_entries() {
    const KNOWN: &[&str] = &[
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "README.md",
        "compose",
        "proto",
        "services",
        "systemd",
        "target",
        "tests",
    ];
    for entry in fs::read_dir(root()).expect("the root") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        assert!(
            name.starts_with('.') || KNOWN.contains(&name.as_str()),
            "unexpected top-level entry {name}"
        );
    }
}

/// Prints files over 400 lines; fails over 600.
#[test]
fn files_are_short() {
    let mut sizes: Vec<(usize, String)> = ["services", "tests", "proto"]
        .iter()
        .flat_map(|dir| files(&root().join(dir), "rs"))
        .map(|path| {
            let lines = fs::read_to_string(&path)
                .unwrap_or_default()
                .lines()
                .count();
            (
                lines,
                path.strip_prefix(root())
                    .unwrap_or(&path)
                    .display()
                    .to_string(),
            )
        })
        .collect();
    sizes.sort();
    let median = sizes.get(sizes.len() / 2).map_or(0, |(lines, _)| *lines);
    println!("{} files, median {median} lines; over 400:", sizes.len());
    for (lines, path) in sizes.iter().rev().take_while(|(lines, _)| *lines > 400) {
        println!("{lines:6} {path}");
    }
    let worst = sizes.last().map_or(0, |(lines, _)| *lines);
    assert!(worst <= 600, "{:?} is too long", sizes.last());
}
