//! The pages: the places that they name are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use polylet_tidy::{RANKS, root};

/// Everything in the repository's own folders, files and folders, from the root.
fn places() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut queue: Vec<_> = ["services", "tests", "proto"]
        .map(|d| root().join(d))
        .into();
    while let Some(at) = queue.pop() {
        let below = at.strip_prefix(root()).unwrap_or(&at);
        found.insert(below.display().to_string());
        if at.is_dir() && !at.ends_with("target") {
            let entries = fs::read_dir(&at).expect("a folder");
            queue.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    found
}

/// What stands between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The places that a row of the architecture's table names. The first of a crate is told from
/// `services/` or from the root; the end of a path will do for others of the same crate.
fn missing(row: &str, places: &BTreeSet<String>) -> Vec<String> {
    let is_path = |text: &&str| {
        let plain = text
            .chars()
            .all(|c| c.is_alphanumeric() || "/._-*".contains(c));
        plain && (text.contains('/') || Path::new(text).extension().is_some_and(|e| e == "rs"))
    };
    let mut wrong = Vec::new();
    let mut of_crate = String::new();
    for path in quoted(row).filter(is_path) {
        let (end, rest) = match path.strip_suffix('*') {
            Some(start) => (start, true),
            None => (path.trim_end_matches('/'), false),
        };
        let is = |place: &str, path: &str| match rest {
            true => place.starts_with(path),
            false => place == path,
        };
        let whole = |place: &&String| is(place, end) || is(place, &format!("services/{end}"));
        if let Some(found) = places.iter().find(whole) {
            of_crate = match found.split_once("/src") {
                Some((of_crate, _)) => format!("{of_crate}/src/"),
                None => String::new(),
            };
        } else {
            let own = |place: &&String| {
                place.starts_with(&of_crate) && !rest && place.ends_with(&format!("/{end}"))
            };
            if !places.iter().any(|place| own(&place)) {
                wrong.push(path.to_owned());
            }
        }
    }
    wrong
}

#[test]
fn where_to_change_what_is_there() {
    let page = fs::read_to_string(root().join("services/README.md")).expect("the architecture");
    let (_, table) = page.split_once("## Where do I change").expect("the table");
    let places = places();
    let mut wrong = Vec::new();
    let rows = table.lines().take_while(|line| !line.starts_with("## "));
    for row in rows.filter(|line| line.starts_with('|')) {
        wrong.extend(missing(row, &places).into_iter().map(|path| (path, row)));
    }
    assert!(wrong.is_empty(), "named and not there: {wrong:#?}");
}

#[test]
fn a_place_that_is_not_there_is_found() {
    let places: BTreeSet<String> = ["services/a/src/core/x.rs", "services/b/src/y.rs"]
        .map(str::to_owned)
        .into();
    let of = |row| missing(row, &places);
    assert_eq!(
        of("| x | `a/src/core/x.rs`, `core/x.rs`, `x.rs` |"),
        [""; 0]
    );
    assert_eq!(of("| x | `a/src/core/x.rs`, `y.rs` |"), ["y.rs"]);
    assert_eq!(of("| x | `a/src/core/z.rs` |"), ["a/src/core/z.rs"]);
    assert_eq!(of("| x | `a/src/core/x*`, `cargo generate` |"), [""; 0]);
}

/// Names of end-to-end tests and of crates of tests.
#[test]
fn tests_that_the_pages_name_are_there() {
    let page = fs::read_to_string(root().join("README.md")).expect("the page");
    let (_, reading) = page.split_once("## Reading on").expect("the last section");
    let mut named = 0;
    for name in quoted(reading) {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        // Programs of others, named beside them.
        if !is_name || name == "hostpathplugin" {
            continue;
        }
        named += 1;
        let test = root().join(format!("tests/e2e/tests/{name}.rs"));
        let of_tests = root().join("tests").join(name);
        assert!(test.exists() || of_tests.is_dir(), "no tests {name}");
    }
    assert!(named > 0, "the page names no test");
}

/// The page of the architecture speaks of every service.
#[test]
fn every_service_is_introduced() {
    let page = fs::read_to_string(root().join("services/README.md")).expect("the architecture");
    for (service, _) in RANKS.iter().filter(|(service, _)| *service != "supervisor") {
        let introduced = format!("**`polylet-{service}`**");
        assert!(page.contains(&introduced), "{service} is not introduced");
    }
}
