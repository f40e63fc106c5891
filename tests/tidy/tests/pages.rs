//! The documentation pages: the paths and tests that they mention exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use polylet_tidy::{RANKS, root};

/// All files and directories of the repository's own trees, relative to the root.
fn paths() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut queue: Vec<_> = ["services", "tests", "proto", "systemd", "compose"]
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

/// The parts of a line in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The nonexistent paths in a row of the architecture page's table. The first path of a crate is
/// relative to `services/` or the root; further ones in the same crate may be path suffixes.
fn missing(row: &str, paths: &BTreeSet<String>) -> Vec<String> {
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
        if let Some(found) = paths.iter().find(whole) {
            of_crate = match found.split_once("/src") {
                Some((of_crate, _)) => format!("{of_crate}/src/"),
                None => String::new(),
            };
        } else {
            let own = |place: &&String| {
                place.starts_with(&of_crate) && !rest && place.ends_with(&format!("/{end}"))
            };
            if !paths.iter().any(|place| own(&place)) {
                wrong.push(path.to_owned());
            }
        }
    }
    wrong
}

#[test]
fn paths_of_the_architecture_page_exist() {
    let page = fs::read_to_string(root().join("services/README.md")).expect("the architecture");
    let (_, table) = page.split_once("## Where do I change").expect("the table");
    let paths = paths();
    let mut wrong = Vec::new();
    let rows = table.lines().take_while(|line| !line.starts_with("## "));
    for row in rows.filter(|line| line.starts_with('|')) {
        wrong.extend(missing(row, &paths).into_iter().map(|path| (path, row)));
    }
    assert!(wrong.is_empty(), "paths that do not exist: {wrong:#?}");
}

#[test]
fn missing_path_is_reported() {
    let paths: BTreeSet<String> = ["services/a/src/core/x.rs", "services/b/src/y.rs"]
        .map(str::to_owned)
        .into();
    let of = |row| missing(row, &paths);
    assert_eq!(
        of("| x | `a/src/core/x.rs`, `core/x.rs`, `x.rs` |"),
        [""; 0]
    );
    assert_eq!(of("| x | `a/src/core/x.rs`, `y.rs` |"), ["y.rs"]);
    assert_eq!(of("| x | `a/src/core/z.rs` |"), ["a/src/core/z.rs"]);
    assert_eq!(of("| x | `a/src/core/x*`, `cargo generate` |"), [""; 0]);
}

/// Names of end-to-end tests and test crates in the README exist.
#[test]
fn tests_mentioned_in_the_readme_exist() {
    let page = fs::read_to_string(root().join("README.md")).expect("the page");
    let (_, reading) = page
        .split_once("## Further reading")
        .expect("the last section");
    let mut named = 0;
    for name in quoted(reading) {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        // Third-party programs mentioned in the same place.
        if !is_name || name == "hostpathplugin" {
            continue;
        }
        named += 1;
        let test = root().join(format!("tests/e2e/tests/{name}.rs"));
        let of_tests = root().join("tests").join(name);
        assert!(test.exists() || of_tests.is_dir(), "no test {name}");
    }
    assert!(named > 0, "the README mentions no test");
}

/// The architecture page has an entry for every service.
#[test]
fn architecture_page_covers_every_service() {
    let page = fs::read_to_string(root().join("services/README.md")).expect("the architecture");
    for (service, _) in RANKS.iter().filter(|(service, _)| *service != "supervisor") {
        let introduced = format!("**`polylet-{service}`**");
        assert!(
            page.contains(&introduced),
            "services/README.md does not cover {service}"
        );
    }
}
