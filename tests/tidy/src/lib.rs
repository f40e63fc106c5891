//! Rules of the repository that the compiler cannot check, as tests. Each file under `tests/` covers
//! one subject; this library has the shared code, and `generate` writes the Rust code of the wire.

use std::fs;
use std::path::{Path, PathBuf};

/// The accepted wire, and the levels that follow from it.
pub mod baseline;
/// Code that finds values in messages that this build does not know.
pub mod known;
/// What a kubelet computes of static pods, from its own code.
pub mod static_pods;
/// Parsed Rust files: their types, references and documentation.
pub mod syntax;
/// Compilation, code generation and description of the wire.
pub mod wire;

/// The repository's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(PathBuf::from).unwrap_or(here)
}

/// The services, lowest rank first: a service calls only services of a lower rank.
pub const RANKS: &[(&str, u32)] = &[
    ("pleg", 0),
    ("pod-config", 0),
    ("device-manager", 0),
    ("prober", 1),
    ("image-gc", 1),
    ("volume-manager", 1),
    ("eviction", 2),
    ("sync-coordinator", 3),
    ("status-reporter", 4),
    ("node-api", 5),
    ("supervisor", 6),
];

/// All files with this extension below `dir`, sorted, without `target` and generated code.
pub fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![dir.to_path_buf()];
    while let Some(dir) = queue.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let skipped = ["target", "gen", ".git"]
                .iter()
                .any(|name| path.ends_with(name));
            if path.is_dir() && !skipped {
                queue.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The code lines of a Rust file, without comments and test modules at its end.
pub fn code_lines(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"))
        .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or("").to_owned()))
        .filter(|(_, line)| !line.trim().is_empty())
        .collect()
}
