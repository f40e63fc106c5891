//! Programs to upgrade to, and the commands.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use polylet_harness::Node;
use polylet_harness::node::{SERVICES, default_bin_dir};
use serde_json::Value;
use tempfile::TempDir;

use crate::ok;

/// Names of all programs of a node.
pub fn programs() -> Vec<String> {
    let services = SERVICES.iter().map(|service| format!("polylet-{service}"));
    services.chain(["polylet".to_owned()]).collect()
}

/// The present programs, in a directory of their own.
pub fn installed() -> TempDir {
    let bin = ok(tempfile::tempdir());
    for name in programs() {
        ok(fs::copy(
            default_bin_dir().join(&name),
            bin.path().join(&name),
        ));
    }
    bin
}

/// Another build: bytes after the end of a program do not matter to the kernel.
pub fn build(name: &str, directory: &Path) {
    let path = directory.join(name);
    ok(fs::copy(default_bin_dir().join(name), &path));
    let mut file = ok(fs::File::options().append(true).open(&path));
    ok(file.write_all(b"another build"));
}

/// Another build of every program.
pub fn another_build() -> TempDir {
    let directory = ok(tempfile::tempdir());
    for name in programs() {
        build(&name, directory.path());
    }
    directory
}

/// A program with the changed descriptor of another one that otherwise does nothing.
pub fn script(program: &Path, directory: &Path, change: impl Fn(&mut Value)) -> PathBuf {
    let printed = ok(std::process::Command::new(program)
        .arg("--descriptor")
        .output());
    let mut descriptor: Value = ok(serde_json::from_slice(&printed.stdout));
    change(&mut descriptor);
    let path = directory.join("script");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --descriptor ]; then cat <<'END'\n{descriptor}\nEND\nexit; fi\n\
         exec sleep 600\n"
    );
    ok(fs::write(&path, text));
    ok(fs::set_permissions(
        &path,
        fs::Permissions::from_mode(0o755),
    ));
    path
}

/// Runs a command of `polylet`.
pub async fn cli(node: &Node, args: &[&str]) -> Output {
    ok(node.cli(args).await)
}

/// A path as an argument.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Standard output and standard error of a command.
pub fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// The upgrades and rollbacks so far, oldest first.
pub async fn history(node: &Node) -> Vec<Value> {
    let output = cli(node, &["history", "-o", "json"]).await;
    let parsed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    parsed["upgrades"].as_array().cloned().unwrap_or_default()
}
