//! The program of the package, with its code in the order in which a node uses it.
//!
//! Of the code of a service, most runs at the start, on errors or never, and the kernel maps sixteen pages at
//! a time: with code in the linker's order, the processes of a node have nearly all of it in memory.
//! [BOLT](https://github.com/llvm/llvm-project/tree/main/bolt) moves apart what has run in a profile and what
//! has not, within functions, too. The profile comes from benchmarks that run a node of an instrumented program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{CommandError, run};
use crate::training::run_benchmarks;

mod symbols;
mod tools;

use symbols::SymbolsError;
use tools::BoltTools;

/// How the program is laid out: what has run first, in the order of calls, with the more usual branch of
/// each condition in line; the rest of each function, and functions that have not run, elsewhere.
const LAYOUT: [&str; 6] = [
    // What has not run, too: left where it was, a few functions that run would each map their surroundings.
    "-lite=0",
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
];

/// Why there is no such program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BoltError {
    #[error("there is no {0} in PATH, nor one with a version (Debian: bolt-19, libbolt-19-dev)")]
    NoTool(&'static str),
    #[error("there is no {} (Debian: the package libbolt-VERSION-dev)", .0.display())]
    NoRuntime(PathBuf),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("reading the symbols of {}", path.display())]
    Symbols { path: PathBuf, source: SymbolsError },
    #[error("a process ended before it had written {}", .0.display())]
    TornProfile(PathBuf),
    #[error("no process has written a profile in {}", .0.display())]
    NoProfile(PathBuf),
}

/// Runs the benchmarks with a program that was linked with its relocations, and returns the path of the program
/// with its code in the order that they show.
///
/// # Errors
/// If a tool is missing, a benchmark fails, or a file cannot be read or written.
pub(crate) fn arrange(program: &Path) -> Result<PathBuf, BoltError> {
    let tools = BoltTools::find()?;
    let directory = crate::target_directory().join("bolt");
    let profiles = directory.join("profiles");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&profiles).map_err(write_error(&profiles))?;
    let linked = directory.join("linked");
    copy_with_short_names(program, &linked)?;

    let instrumented = directory.join("instrumented");
    run(tools.instrument(&linked, &instrumented, &profiles.join("process")))?;
    let programs = directory.join("bin");
    run_benchmarks(&instrumented, &programs)?;

    let profile = directory.join("profile");
    let merged = run(tools.merge(&written_profiles(&profiles)?))?.stdout;
    fs::write(&profile, merged).map_err(write_error(&profile))?;
    let optimized = directory.join("polylet-multicall");
    run(tools.optimize(&linked, &optimized, &profile))?;
    // One that cannot be started is not packaged.
    let mut started = Command::new(&optimized);
    started.arg("--version");
    run(started)?;
    for spent in [&profiles, &programs] {
        let _ = fs::remove_dir_all(spent);
    }
    let _ = fs::remove_file(&instrumented);
    Ok(optimized)
}

fn copy_with_short_names(from: &Path, to: &Path) -> Result<(), BoltError> {
    let mut content = fs::read(from).map_err(read_error(from))?;
    symbols::shorten_names(&mut content, symbols::MAX_NAME).map_err(|source| {
        BoltError::Symbols {
            path: from.to_owned(),
            source,
        }
    })?;
    // A copy first, for its mode.
    fs::copy(from, to).map_err(write_error(to))?;
    fs::write(to, content).map_err(write_error(to))
}

/// The profiles of all processes. A process that was killed while it wrote has left a part of a line.
fn written_profiles(directory: &Path) -> Result<Vec<PathBuf>, BoltError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(read_error(directory))? {
        let path = entry.map_err(read_error(directory))?.path();
        let content = fs::read(&path).map_err(read_error(&path))?;
        if content.last() != Some(&b'\n') {
            return Err(BoltError::TornProfile(path));
        }
        all.push(path);
    }
    if all.is_empty() {
        return Err(BoltError::NoProfile(directory.to_owned()));
    }
    all.sort();
    Ok(all)
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> BoltError + use<> {
    let path = path.to_owned();
    |source| BoltError::Read { path, source }
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> BoltError + use<> {
    let path = path.to_owned();
    |source| BoltError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_was_not_written_to_its_end_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let profiles = || written_profiles(directory.path());
        assert!(matches!(profiles(), Err(BoltError::NoProfile(_))));
        write("process.1.fdata", "1 main 4 1 start 0 0 1\n");
        write("process.2.fdata", "1 main 4 1 stop 0 0 1\n");
        assert_eq!(profiles().unwrap().len(), 2);
        write("process.3.fdata", "1 main 4 1 start 0 0 1\n1 main 8 1 sto");
        let error = profiles().unwrap_err();
        assert!(
            matches!(&error, BoltError::TornProfile(path) if path.ends_with("process.3.fdata"))
        );
    }
}
