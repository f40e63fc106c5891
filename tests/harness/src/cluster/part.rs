use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{HarnessError, file};
use crate::{containerd, machine, procs, wait};

/// One program of the cluster: it can be stopped and started again, and ends with this process,
/// however that ends.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Part {
    pub(super) fn new(name: &'static str, program: &Path, args: Vec<String>, dir: &Path) -> Self {
        Self {
            name,
            program: program.to_owned(),
            args,
            log: dir.join(format!("{name}.log")),
            child: None,
        }
    }

    /// The same program with some of its flags changed, not started.
    pub(super) fn like(&self, name: &'static str, changed: &[(&str, String)]) -> Self {
        let own = |arg: &String| {
            let flag = arg.trim_start_matches("--").split('=').next();
            let value = changed.iter().find(|(name, _)| Some(*name) == flag);
            value.map_or_else(|| arg.clone(), |(name, value)| format!("--{name}={value}"))
        };
        Self {
            name,
            program: self.program.clone(),
            args: self.args.iter().map(own).collect(),
            log: self.log.with_file_name(format!("{name}.log")),
            child: None,
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn up(&mut self) -> Result<(), HarnessError> {
        let opened = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = file("open", &self.log, opened)?;
        let also: File = file("open", &self.log, log.try_clone())?;
        // The kernel kills it when the thread that started it ends, even by SIGKILL.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // A Ctrl-C is for us: we end it in order.
            .process_group(0)
            .spawn();
        self.child = Some(child.map_err(|source| HarnessError::Run {
            program: self.name.to_owned(),
            source,
        })?);
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status, when it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// The error for one that ended while it was being started.
    pub(super) fn failure(&self, status: ExitStatus) -> HarnessError {
        HarnessError::Ended {
            program: self.name,
            status: status.to_string(),
            log: containerd::tail(&self.log, 20),
        }
    }

    /// Holds it, as a machine that has gone silent: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            machine::signal(pid, signal);
        }
    }

    /// Ends it: at once, or giving it up to ten seconds.
    pub fn down(&mut self, at_once: bool) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = child.id();
        if !at_once {
            machine::signal(pid, Signal::TERM);
            wait::until_blocking(Duration::from_secs(10), || !procs::alive(pid));
        }
        machine::signal(pid, Signal::KILL);
        // It has ended: this only takes its record away.
        let _ = child.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.down(true);
    }
}
