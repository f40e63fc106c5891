use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{HarnessError, file};
use crate::{containerd, machine, procs, wait};

/// A control plane process. It can be stopped and restarted, and is killed with this process.
#[derive(Debug)]
pub struct Component {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Component {
    pub(super) fn new(name: &'static str, program: &Path, args: Vec<String>, dir: &Path) -> Self {
        Self {
            name,
            program: program.to_owned(),
            args,
            log: dir.join(format!("{name}.log")),
            child: None,
        }
    }

    /// The same program with some flags changed, not started.
    pub(super) fn with_args(&self, name: &'static str, changed: &[(&str, String)]) -> Self {
        let change = |arg: &String| {
            let flag = arg.trim_start_matches("--").split('=').next();
            let value = changed.iter().find(|(name, _)| Some(*name) == flag);
            value.map_or_else(|| arg.clone(), |(name, value)| format!("--{name}={value}"))
        };
        Self {
            name,
            program: self.program.clone(),
            args: self.args.iter().map(change).collect(),
            log: self.log.with_file_name(format!("{name}.log")),
            child: None,
        }
    }

    /// Starts the program.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub fn start(&mut self) -> Result<(), HarnessError> {
        let opened = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = file("open", &self.log, opened)?;
        let stderr: File = file("open", &self.log, log.try_clone())?;
        // The kernel kills it when the thread that started it ends, even by SIGKILL.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(stderr)
            // Ctrl-C must reach only this process, which stops the components in order.
            .process_group(0)
            .spawn();
        self.child = Some(child.map_err(|source| HarnessError::Run {
            program: self.name.to_owned(),
            source,
        })?);
        Ok(())
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The exit status of a process that has exited by itself.
    pub fn try_exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// The error for a program that exited during its start.
    pub(super) fn failure(&self, status: ExitStatus) -> HarnessError {
        HarnessError::ExitedEarly {
            program: self.name,
            status: status.to_string(),
            log: containerd::tail(&self.log, 20),
        }
    }

    /// Stops its processes with SIGSTOP: connections stay open without responses.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it after [`Component::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            machine::signal(pid, signal);
        }
    }

    /// Kills the process, or terminates it and kills it after ten seconds.
    pub fn stop(&mut self, kill: bool) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = child.id();
        if !kill {
            machine::signal(pid, Signal::TERM);
            wait::until_blocking(Duration::from_secs(10), || !procs::alive(pid));
        }
        machine::signal(pid, Signal::KILL);
        // Reaps the process.
        let _ = child.wait();
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.stop(true);
    }
}
