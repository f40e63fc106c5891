//! Builds the Debian package out of a program that exists, with a cargo-deb of its own version.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{CommandError, run};
use crate::extras;

/// The version of cargo-deb that the package is described for.
const CARGO_DEB: &str = "3.8.0";

/// The name of the program in the directory of built programs.
const PROGRAM: &str = "polylet-multicall";

/// Why there is no package.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DebError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("copying {}", path.display())]
    Program { path: PathBuf, source: io::Error },
}

/// Builds the package from the multicall program `program` into the file `output`. `fast` compresses
/// less, for a package that is not sent anywhere.
///
/// # Errors
/// If cargo-deb cannot be installed or fails, or a file cannot be written.
pub fn build(program: &Path, output: &Path, fast: bool) -> Result<(), DebError> {
    let target = crate::root().join("target");
    make_dir(&target)?;
    // The paths of the package's content are constant: one build at a time.
    let _lock = lock(&target.join("package.lock"))?;
    let tool = cargo_deb(&target)?;
    let package = target.join("package");
    extras::write(&package).map_err(write_error(&package))?;
    let built = package.join("release");
    make_dir(&built)?;
    let copy = built.join(PROGRAM);
    fs::copy(program, &copy).map_err(|source| DebError::Program {
        path: program.to_owned(),
        source,
    })?;
    let mut command = Command::new(tool);
    command
        .args(["deb", "--quiet", "--no-build", "--package", PROGRAM])
        // Profiles name functions, and strip(1) breaks what BOLT has written.
        .arg("--no-strip")
        .args(["--compress-system", "--output"])
        .arg(output)
        .args(
            fast.then_some(["--fast", "--compress-type=gz"])
                .into_iter()
                .flatten(),
        )
        // Where it looks for built programs.
        .env("CARGO_TARGET_DIR", &package)
        .current_dir(crate::root());
    run(command)?;
    Ok(())
}

/// The pinned cargo-deb, compiled at its first use. It is no dependency, as its own would change those of
/// the services: features of crates are those of all who use them.
fn cargo_deb(target: &Path) -> Result<PathBuf, DebError> {
    let root = target.join(format!("tools/cargo-deb-{CARGO_DEB}"));
    let program = root.join("bin/cargo-deb");
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("compiling cargo-deb {CARGO_DEB}, once (about a minute)");
    let mut command = Command::new("cargo");
    command
        .args(["install", "cargo-deb", "--quiet", "--locked"])
        .args(["--version", CARGO_DEB])
        // Compresses by the system's programs.
        .args(["--no-default-features", "--no-track", "--root"])
        .arg(&root)
        .arg("--target-dir")
        .arg(target.join("tools/build"));
    run(command)?;
    // As large as the tool is small.
    let _ = fs::remove_dir_all(target.join("tools/build"));
    Ok(program)
}

fn make_dir(path: &Path) -> Result<(), DebError> {
    fs::create_dir_all(path).map_err(write_error(path))
}

fn lock(path: &Path) -> Result<File, DebError> {
    let file = File::create(path).map_err(write_error(path))?;
    file.lock().map_err(write_error(path))?;
    Ok(file)
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> DebError + use<> {
    let path = path.to_owned();
    |source| DebError::Write { path, source }
}
