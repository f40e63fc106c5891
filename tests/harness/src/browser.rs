//! Pages as a person sees them: opened by a headless Chromium, which tells what became of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::error::{HarnessError, file};
use crate::machine;
use crate::packages::{self, Need};

const CHROMIUM: Need = Need {
    package: "chromium",
    program: "chromium",
    why: "opens pages",
};
const NPM: Need = Need {
    package: "npm",
    program: "npm",
    why: "fetches speedscope",
};

/// How long scripts of a page run, in milliseconds of the page's own clock, which does not wait for anything.
const SCRIPT_TIME: u32 = 20_000;

/// A headless Chromium with a profile of its own.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
    directory: tempfile::TempDir,
}

/// What became of a page after its scripts had run.
#[derive(Debug)]
pub struct Page {
    /// The document as HTML.
    pub document: String,
    /// What was written to the console: by scripts, and by the browser about what it did not allow.
    pub console: Vec<String>,
    /// The addresses that the page asked for beside files of this machine.
    pub requests: Vec<String>,
}

impl Browser {
    /// Finds or installs the browser.
    ///
    /// # Errors
    /// Fails if it is not there and cannot be installed.
    pub fn install(say: &dyn Fn(&str)) -> Result<Browser, HarnessError> {
        let program = installed(CHROMIUM, say)?;
        let directory = file("create", "a temporary directory", tempfile::tempdir())?;
        Ok(Browser { program, directory })
    }

    /// Opens a page by its address in a window of this size, and keeps a picture of it.
    ///
    /// # Errors
    /// Fails if the browser does.
    pub fn open(
        &self,
        address: &str,
        size: (u32, u32),
        picture: &Path,
    ) -> Result<Page, HarnessError> {
        let log = self.directory.path().join("net-log.json");
        let mut command = Command::new(&self.program);
        command
            // The sandbox needs another user than root; the pages are our own.
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            // Nothing leaves this machine, whatever the browser itself would like to know.
            .args([
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--disable-default-apps",
            ])
            .args([
                "--allow-file-access-from-files",
                "--enable-logging=stderr",
                "--hide-scrollbars",
            ])
            .arg(format!(
                "--user-data-dir={}",
                self.directory.path().join("profile").display()
            ))
            .arg(format!("--log-net-log={}", log.display()))
            .arg(format!("--virtual-time-budget={SCRIPT_TIME}"))
            .arg(format!("--window-size={},{}", size.0, size.1))
            .arg(format!("--screenshot={}", picture.display()))
            .args(["--dump-dom", address]);
        let output = machine::output(&mut command)?;
        Ok(Page {
            document: String::from_utf8_lossy(&output.stdout).into_owned(),
            console: console(&String::from_utf8_lossy(&output.stderr)),
            requests: file("read", &log, fs::read(&log).and_then(|log| requests(&log)))?,
        })
    }
}

/// Fetches speedscope, a viewer of profiles in the browser, at a pinned version; its page.
///
/// # Errors
/// Fails if npm does.
pub fn speedscope(directory: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
    let npm = installed(NPM, say)?;
    for name in ["package.json", "package-lock.json"] {
        let source = machine::workspace()
            .join("tests/observability/speedscope")
            .join(name);
        file("copy", &source, fs::copy(&source, directory.join(name)))?;
    }
    let mut command = Command::new(npm);
    command
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(directory);
    machine::output(&mut command)?;
    Ok(directory.join("node_modules/speedscope/dist/release/index.html"))
}

fn installed(need: Need, say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
    if machine::program(need.program).is_none() {
        packages::install(&[need], say)?;
    }
    machine::program(need.program).ok_or_else(|| HarnessError::StillMissing {
        program: need.program.to_owned(),
        package: need.package.to_owned(),
    })
}

/// The lines of the browser's log that a console would show.
fn console(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains(":CONSOLE"));
    lines.map(str::to_owned).collect()
}

/// The addresses that a page of a file asked for, by the browser's log of the network.
fn requests(log: &[u8]) -> io::Result<Vec<String>> {
    let log: Value = serde_json::from_slice(log)?;
    let events = log["events"].as_array();
    let events = events.ok_or_else(|| io::Error::other("a log without events"))?;
    let of_page = |params: &Value| {
        let key = params["network_isolation_key"].as_str();
        key.is_some_and(|key| key.starts_with("file:"))
    };
    let params = events.iter().map(|event| &event["params"]);
    let urls = params
        .filter(|params| of_page(params))
        .filter_map(|params| params["url"].as_str());
    Ok(urls.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_page_exclude_those_of_the_browser() {
        let log = r#"{"events": [
            {"params": {"url": "http://a/", "network_isolation_key": "null null"}},
            {"params": {"url": "http://b/", "network_isolation_key": "file:// [internally: file://] file://"}},
            {"params": {"url": "http://c/"}}, {}
        ]}"#;
        assert_eq!(requests(log.as_bytes()).unwrap(), ["http://b/"]);
        // Cut off, or of another version: nothing is known.
        assert!(requests(br#"{"events": ["#).is_err());
        assert!(requests(b"{}").is_err());
    }

    #[test]
    fn console_messages_are_selected_from_the_log() {
        let line =
            r#"[1:2:1125/220329.168600:INFO:CONSOLE:1] "hello", source: file:///page.html (1)"#;
        let log = format!("[1:2:1125/1.2:WARNING:idle_linux.cc:111] none\n{line}\n");
        assert_eq!(console(&log), [line]);
    }
}
