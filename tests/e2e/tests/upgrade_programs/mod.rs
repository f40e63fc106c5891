//! Programs to upgrade to, and the commands.

#![allow(dead_code, reason = "not every test uses all of this")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use polylet_e2e::ok;
use polylet_harness::Node;
use polylet_harness::node::{SERVICES, default_bin_dir};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn programs() -> Vec<String> {
    let services = SERVICES.iter().map(|service| format!("polylet-{service}"));
    services.chain(["polylet".to_owned()]).collect()
}

/// The present programs, in a directory of their own.
pub(crate) fn installed() -> TempDir {
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
pub(crate) fn build(name: &str, directory: &Path) {
    let path = directory.join(name);
    ok(fs::copy(default_bin_dir().join(name), &path));
    let mut file = ok(fs::File::options().append(true).open(&path));
    ok(file.write_all(b"another build"));
}

/// A program with the changed descriptor of another one that otherwise does nothing.
pub(crate) fn script(program: &Path, directory: &Path, change: impl Fn(&mut Value)) -> PathBuf {
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

pub(crate) async fn cli(node: &Node, args: &[&str]) -> Output {
    ok(node.cli(args).await)
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

pub(crate) async fn history(node: &Node) -> Vec<Value> {
    let output = cli(node, &["history", "-o", "json"]).await;
    let parsed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    parsed["upgrades"].as_array().cloned().unwrap_or_default()
}
