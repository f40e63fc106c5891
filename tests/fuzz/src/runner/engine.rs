use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use procfs::process::Process;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{FuzzError, target_directory, write_error};
use crate::{TARGET_VARIABLE, Target};

/// Time after which an input hangs, in seconds: much, as the engine may have little of the processor. Slow
/// inputs that end are found by their processor time.
const HANG: u32 = 120;
/// Memory of the engine in megabytes. That of an input is limited by the allocator.
const MEMORY: u32 = 2048;
/// The longest input that is printed, in bytes.
const MAX_PRINTED: usize = 16 << 10;

/// This program as the engine of one target.
#[derive(Debug)]
pub(super) struct FuzzEngine {
    program: PathBuf,
    seed: Option<u32>,
}

/// What one run of a target did.
#[derive(Debug)]
pub(super) struct EngineRun {
    pub(super) processor_time: Duration,
    pub(super) inputs: u64,
    /// The found input, in words.
    pub(super) found: Option<String>,
}

/// The directories of a target outside the tree.
struct Directories {
    /// Inputs that reached new code in this and earlier runs.
    corpus: PathBuf,
    /// Inputs that failed.
    findings: PathBuf,
    log: PathBuf,
}

impl FuzzEngine {
    /// With a seed, runs begin with the stored inputs alone.
    pub(super) fn new(seed: Option<u32>) -> Result<Self, FuzzError> {
        let program = std::env::current_exe().map_err(|source| FuzzError::Run {
            program: PathBuf::new(),
            source,
        })?;
        Ok(FuzzEngine { program, seed })
    }

    /// Fuzzes a target for this time.
    pub(super) fn fuzz(&self, target: &Target, time: Duration) -> Result<EngineRun, FuzzError> {
        let dirs = Directories::create(target, self.seed)?;
        let log = File::create(&dirs.log).map_err(write_error(&dirs.log))?;
        let mut command = self.command(target, &dirs);
        command
            .arg(format!("-max_total_time={}", time.as_secs()))
            .arg(format!("-max_len={}", target.max_length))
            .arg(format!("-seed={}", self.seed.unwrap_or_default()))
            .args(["-print_final_stats=1", "-use_value_profile=1"])
            .arg(&dirs.corpus)
            .args(present([target.corpus(), target.regressions()]))
            .stderr(log);
        let mut child = command.spawn().map_err(|source| self.error(source))?;
        let processor_time = self.processor_time_at_exit(&child);
        let status = child.wait().map_err(|source| self.error(source))?;
        let log = String::from_utf8_lossy(&fs::read(&dirs.log).unwrap_or_default()).into_owned();
        Ok(EngineRun {
            processor_time: processor_time?,
            inputs: inputs(&log),
            found: (!status.success()).then(|| describe(target, &log, status)),
        })
    }

    /// Reduces an input that fails.
    pub(super) fn minimize(
        &self,
        target: &Target,
        input: &Path,
        seconds: u64,
    ) -> Result<bool, FuzzError> {
        let dirs = Directories::create(target, self.seed)?;
        let mut command = self.command(target, &dirs);
        command
            .arg("-minimize_crash=1")
            .arg(format!("-max_total_time={seconds}"))
            .arg(input);
        self.succeeds(&mut command)
    }

    /// Runs one input.
    pub(super) fn replay(&self, target: &Target, input: &Path) -> Result<bool, FuzzError> {
        let dirs = Directories::create(target, self.seed)?;
        self.succeeds(self.command(target, &dirs).arg(input))
    }

    fn command(&self, target: &Target, dirs: &Directories) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env(TARGET_VARIABLE, target.name)
            .arg(format!("-timeout={HANG}"))
            .arg(format!("-report_slow_units={HANG}"))
            .arg(format!("-rss_limit_mb={MEMORY}"))
            .arg("-detect_leaks=0")
            .arg(format!("-artifact_prefix={}/", dirs.findings.display()))
            .stdin(Stdio::null());
        command
    }

    fn succeeds(&self, command: &mut Command) -> Result<bool, FuzzError> {
        let status = command.status().map_err(|source| self.error(source))?;
        Ok(status.success())
    }

    /// Waits until the engine exits, and reads its processor time before it is gone.
    fn processor_time_at_exit(&self, child: &Child) -> Result<Duration, FuzzError> {
        let pid = Pid::from_child(child);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), options).map_err(|source| self.error(source.into()))?;
        let pid = pid.as_raw_nonzero().get();
        let stat = Process::new(pid).and_then(|process| process.stat());
        let stat = stat.map_err(|source| FuzzError::ProcessorTime { pid, source })?;
        let ticks = stat.utime.saturating_add(stat.stime);
        let ms = ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1);
        Ok(Duration::from_millis(ms))
    }

    fn error(&self, source: std::io::Error) -> FuzzError {
        FuzzError::Run {
            program: self.program.clone(),
            source,
        }
    }
}

impl Directories {
    /// A run that can be repeated begins without the inputs of others.
    fn create(target: &Target, seed: Option<u32>) -> Result<Self, FuzzError> {
        let root = target_directory(target);
        let name = if seed.is_some() { "seeded" } else { "corpus" };
        let dirs = Directories {
            corpus: root.join(name),
            findings: root.join("findings"),
            log: root.join("log"),
        };
        if seed.is_some() && dirs.corpus.exists() {
            fs::remove_dir_all(&dirs.corpus).map_err(write_error(&dirs.corpus))?;
        }
        for dir in [&dirs.corpus, &dirs.findings] {
            fs::create_dir_all(dir).map_err(write_error(dir))?;
        }
        Ok(dirs)
    }
}

fn present(dirs: [PathBuf; 2]) -> impl Iterator<Item = PathBuf> {
    dirs.into_iter().filter(|dir| dir.is_dir())
}

/// The number of inputs of a run, from the engine's log.
fn inputs(log: &str) -> u64 {
    let name = "stat::number_of_executed_units:";
    let line = log.lines().rfind(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    number.unwrap_or_default()
}

/// The path of the found input, from the engine's log.
fn found_input(log: &str) -> Option<&str> {
    let line = log
        .lines()
        .rfind(|line| line.contains("Test unit written to "))?;
    let (_, path) = line.split_once("Test unit written to ")?;
    Some(path.trim())
}

/// The end of the log, which has the panic, then the input, and how to go on.
fn describe(target: &Target, log: &str, status: ExitStatus) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.len().saturating_sub(25);
    let mut text = String::new();
    for line in lines.iter().skip(last) {
        text.push_str(&format!("    {line}\n"));
    }
    let Some(path) = found_input(log) else {
        return format!("{text}    {status}, without an input");
    };
    if let Ok(input) = fs::read(path)
        && input.len() <= MAX_PRINTED
    {
        text.push_str(&format!("    base64: {}\n", BASE64_STANDARD.encode(input)));
    }
    let (name, store) = (target.name, target.regressions());
    text.push_str(&format!(
        "    {status}, on the input {path}\n\
         \x20   replay it:   cargo fuzz-long --target {name} --replay {path}\n\
         \x20   minimize it: cargo fuzz-long --target {name} --minimize {path}\n\
         \x20   store it with its mend in {}",
        store.display()
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_an_engine_names_inputs() {
        let log = "==1== ERROR: libFuzzer: deadly signal\n\
                   stat::number_of_executed_units: 1234\n\
                   artifact_prefix='/x/'; Test unit written to /x/crash-0a1b\nBase64: AA==\n";
        assert_eq!(inputs(log), 1234);
        assert_eq!(found_input(log), Some("/x/crash-0a1b"));
        assert_eq!((inputs(""), found_input("")), (0, None));
    }
}
