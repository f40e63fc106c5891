//! The generated part of `systemd/`: units, users and groups, and directories, out of the services'
//! descriptors and a table of what each service needs from the system. `cargo generate units` writes
//! it; a test in `tests/tidy` compares it with the tree.
//!
//! - [`facts`]: what each service needs from the system, with the reason for each.
//! - [`profile`]: the protections of a unit without any needs.
//! - [`units`]: the text of the unit files.
//! - [`accounts`]: users, groups and their members.
//! - [`extras`]: manual pages, completions and links of the Debian package.
//! - [`deb`]: the Debian package.
//! - [`program`]: the program of the package, if so asked by profiles of a node at work ([`training`]): [`pgo`]
//!   compiles it, [`bolt`] arranges its code.
//! - [`command`]: other programs, and their failures.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polylet_kit::ServiceDescriptor;

pub mod accounts;
pub mod bolt;
pub mod command;
pub mod deb;
pub mod extras;
pub mod facts;
pub mod pgo;
pub mod profile;
pub mod program;
pub mod training;
pub mod units;

/// Descriptors of all services, callees before callers; the supervisor's comes last.
pub use polylet_multicall::DESCRIPTORS;

/// The service that receives the spans of all others, in addition to the declared calls.
pub const SUPERVISOR: &str = "supervisor";

/// The repository's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(PathBuf::from).unwrap_or(here)
}

/// The generated files by their path below `systemd/`.
pub fn files() -> BTreeMap<String, String> {
    let mut files = units::files();
    files.insert("sysusers.d/polylet.conf".to_owned(), accounts::sysusers());
    files.insert("tmpfiles.d/polylet.conf".to_owned(), accounts::tmpfiles());
    files
}

/// Where cargo puts what it builds.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        // Cargo is called in the root, and a compiler elsewhere.
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Writes the generated files and removes those that are not generated any more; returns their number.
///
/// # Errors
/// When a file cannot be written or removed.
pub fn write(directory: &Path) -> io::Result<usize> {
    let files = files();
    for stale in stale(directory, &files)? {
        fs::remove_file(stale)?;
    }
    for (name, text) in &files {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(files.len())
}

/// Files in the directories of generated files that are not generated.
///
/// # Errors
/// When a directory cannot be read.
pub fn stale(directory: &Path, files: &BTreeMap<String, String>) -> io::Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for generated in ["system", "sysusers.d", "tmpfiles.d"] {
        let below = directory.join(generated);
        if !below.exists() {
            continue;
        }
        for entry in fs::read_dir(below)? {
            let entry = entry?;
            let name = format!("{generated}/{}", entry.file_name().to_string_lossy());
            if !files.contains_key(&name) {
                stale.push(entry.path());
            }
        }
    }
    Ok(stale)
}

/// The services that call `service`: those that declare it, and for the supervisor all, which send it
/// their spans.
pub fn callers(service: &str) -> Vec<&'static str> {
    let calls = |descriptor: &&&ServiceDescriptor| {
        let declared = descriptor.calls.iter().any(|call| call.service == service);
        let sends_spans = service == SUPERVISOR;
        descriptor.service != service && (declared || sends_spans)
    };
    let callers = DESCRIPTORS.iter().filter(calls);
    callers.map(|descriptor| descriptor.service).collect()
}
