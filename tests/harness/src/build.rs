use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::error::HarnessError;
use crate::machine;

/// The multicall binary with all programs of a node.
pub const MULTICALL: &str = "polylet-multicall";

/// The cargo profile of the node's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The shipped profile: small and fast, with minutes of link-time optimization.
    Release,
    /// The profile of `cargo demo` and of tests: no optimization, short build time.
    Demo,
}

impl Profile {
    /// The profile's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }

    /// Where its programs are built.
    pub fn directory(self) -> PathBuf {
        machine::target_dir().join(self.name())
    }
}

/// Progress of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProgress {
    /// Number of compiled packages.
    pub compiled: usize,
    /// Total number of packages.
    pub total: usize,
    /// The last compiled package.
    pub package: String,
}

/// A cargo command without the environment variables set by the cargo process that runs this
/// program. Build scripts depend on some of them, which would rebuild these crates and all their
/// dependents on every call.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    let set_by_cargo = |name: &str| {
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        prefixes.iter().any(|prefix| name.starts_with(prefix))
            || ["OUT_DIR", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(set_by_cargo) {
            command.env_remove(name);
        }
    }
    command.current_dir(machine::workspace());
    command
}

/// Builds the multicall binary, installs it under each program's name and returns the directory of
/// these names. `progress` is called for each compiled package.
///
/// # Errors
/// Fails if cargo cannot be run, the build fails, or the links cannot be created.
pub async fn programs(
    profile: Profile,
    progress: &dyn Fn(&BuildProgress),
) -> Result<PathBuf, HarnessError> {
    let total = package_count().await?;
    let mut build = cargo();
    // Selected by binary instead of by package: cargo then resolves the features of the whole
    // workspace, as for this program, and builds nothing twice.
    // Quiet: the caller prints the progress; cargo still prints errors.
    build
        .args(["build", "--profile", profile.name(), "--bin", MULTICALL])
        .args(["--message-format=json-render-diagnostics", "--quiet"])
        .stdout(Stdio::piped());
    compile(build, total, progress).await?;
    let dir = profile.directory();
    let names = dir.join("node");
    install(&dir, &names).await?;
    Ok(names)
}

/// Builds the multicall binary of an exported source and installs it in `names`. `target` may be that of
/// other versions. Without debug information, which nobody reads.
///
/// # Errors
/// As [`programs`].
pub(crate) async fn earlier(
    source: &Path,
    target: &Path,
    profile: Profile,
    names: &Path,
) -> Result<(), HarnessError> {
    let mut build = cargo();
    build
        .args(["build", "--locked", "--quiet", "--profile", profile.name()])
        .args(["--bin", MULTICALL, "--config"])
        .arg(format!("profile.{}.debug=false", profile.name()))
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    check("cargo build", build.status().await)?;
    install(&target.join(profile.name()), names).await
}

/// Installs the multicall binary of a directory under all names.
async fn install(dir: &Path, names: &Path) -> Result<(), HarnessError> {
    let mut install = Command::new(dir.join(MULTICALL));
    install.arg("--install").arg(names).stdin(Stdio::null());
    check(MULTICALL, install.status().await)
}

/// Reads the messages of a running build, one JSON object per line.
async fn compile(
    mut build: Command,
    total: usize,
    progress: &dyn Fn(&BuildProgress),
) -> Result<(), HarnessError> {
    let mut child = build
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| run_error("cargo build", source))?;
    let mut compiled = HashSet::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Some((id, package)) = compiled_package(&line) else {
                continue;
            };
            if compiled.insert(id) {
                progress(&BuildProgress {
                    compiled: compiled.len(),
                    total: total.max(compiled.len()),
                    package,
                });
            }
        }
    }
    check("cargo build", child.wait().await)
}

/// Number of packages in the dependency tree of the multicall binary, itself included.
async fn package_count() -> Result<usize, HarnessError> {
    let mut tree = cargo();
    tree.args(["tree", "--package", MULTICALL, "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}", "--no-dedupe"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = tree
        .output()
        .await
        .map_err(|source| run_error("cargo tree", source))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let packages: HashSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    Ok(packages.len())
}

/// Package id and target of a compiled library or program, from one cargo message.
fn compiled_package(line: &str) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        package_id: Option<String>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let message: Message = serde_json::from_str(line).ok()?;
    let target = message.target?;
    let is_artifact = message.reason == "compiler-artifact";
    let is_build_script = target.kind.iter().any(|kind| kind == "custom-build");
    (is_artifact && !is_build_script).then_some((message.package_id?, target.name))
}

/// An error unless the program succeeded.
pub(crate) fn check(
    program: &str,
    status: std::io::Result<std::process::ExitStatus>,
) -> Result<(), HarnessError> {
    let status = status.map_err(|source| run_error(program, source))?;
    if status.success() {
        return Ok(());
    }
    Err(HarnessError::Failed {
        program: program.to_owned(),
        status: status.to_string(),
        output: "see the compiler messages above".to_owned(),
    })
}

fn run_error(program: &str, source: std::io::Error) -> HarnessError {
    HarnessError::Run {
        program: program.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_of_libraries_and_programs_count() {
        let line = |reason: &str, kind: &str| {
            format!(
                r#"{{"reason":"{reason}","package_id":"a#1","target":{{"name":"a","kind":["{kind}"]}}}}"#
            )
        };
        let counted = Some(("a#1".to_owned(), "a".to_owned()));
        assert_eq!(compiled_package(&line("compiler-artifact", "lib")), counted);
        assert_eq!(compiled_package(&line("compiler-artifact", "bin")), counted);
        let build_script = line("compiler-artifact", "custom-build");
        assert_eq!(compiled_package(&build_script), None);
        assert_eq!(
            compiled_package(&line("build-script-executed", "lib")),
            None
        );
        assert_eq!(compiled_package("not JSON"), None);
    }
}
