//! No program has crash points unless its build asks for them: they are optional everywhere, and in no
//! default feature.

use std::fs;

use polylet_tidy::{files, root};

/// Where a line of a manifest enables crash points for a build that does not ask for them.
fn enables(line: &str) -> bool {
    let is_default = line.starts_with("default =");
    let is_dependency = line.starts_with("polylet-") && line.contains('=');
    let is_crate = line.starts_with("polylet-crash-points");
    let names = ["crash-points\"", "system-calls\""]
        .iter()
        .any(|name| line.contains(name));
    let is_required = is_crate && !line.contains("optional = true") && !line.contains("path =");
    is_required || names && (is_default || is_dependency && line.contains("features"))
}

#[test]
fn crash_points_are_off_by_default() {
    let mut optional = 0;
    for manifest in files(&root(), "toml") {
        let text = fs::read_to_string(&manifest).expect("a manifest");
        for line in text.lines().map(str::trim) {
            assert!(!enables(line), "{}: {line}", manifest.display());
            optional += usize::from(line.starts_with("polylet-crash-points = {"));
        }
    }
    assert!(optional >= 4, "{optional} uses: the test looks at nothing");
}

#[test]
fn lines_that_enable_crash_points() {
    for line in [
        "default = [\"crash-points\"]",
        "polylet-kit = { workspace = true, features = [\"crash-points\"] }",
        "polylet-crash-points.workspace = true",
        "polylet-crash-points = { workspace = true }",
    ] {
        assert!(enables(line), "{line}");
    }
    for line in [
        "crash-points = [\"dep:polylet-crash-points\"]",
        "polylet-crash-points = { workspace = true, optional = true }",
        "polylet-kit.workspace = true",
    ] {
        assert!(!enables(line), "{line}");
    }
}
