//! A command that goes on beside others, with or without a terminal.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use polylet_e2e::ok;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{machine, wait};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

/// A running command whose output goes to a file.
pub(crate) struct BackgroundCommand {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: PathBuf,
    /// The file with the path of its terminal, if it has one.
    terminal: Option<PathBuf>,
}

impl BackgroundCommand {
    pub(crate) fn spawn(mut command: Command, name: String, output: PathBuf) -> Self {
        let file = ok(File::create(&output));
        let errors = ok(file.try_clone());
        command
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(errors)
            .kill_on_drop(true);
        let mut child = ok(command.spawn());
        Self {
            stdin: child.stdin.take(),
            name,
            child,
            output,
            terminal: None,
        }
    }

    /// The same for a command that writes the path of its terminal to a file.
    pub(crate) fn with_terminal(mut self, terminal: PathBuf) -> Self {
        self.terminal = Some(terminal);
        self
    }

    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains a text; whether it came in time.
    pub(crate) async fn wait_for(&mut self, text: &str) -> bool {
        let what = format!("{text:?} of kubectl {}", self.name);
        let waited = until(what, || async {
            let output = self.output();
            if output.contains(text) {
                Poll::Ready(())
            } else {
                Poll::Pending(output)
            }
        })
        .await;
        if let Err(error) = &waited {
            eprintln!("{}", polylet_harness::error::report(error));
        }
        waited.is_ok()
    }

    pub(crate) async fn write(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            // It may have ended, which its output tells.
            let _ = stdin.write_all(text.as_bytes()).await;
            let _ = stdin.flush().await;
        }
    }

    /// Ends its input.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Changes the size of its terminal, as a window does.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.stty(&["rows", &rows.to_string(), "cols", &columns.to_string()]);
    }

    /// Waits until the command reads each key itself: before, the terminal would echo its input.
    pub(crate) async fn wait_raw(&self) {
        ok(until("a raw terminal", || async {
            let settings = self.stty(&["-a"]);
            if settings.contains("-icanon") {
                Poll::Ready(())
            } else {
                Poll::Pending(settings)
            }
        })
        .await);
    }

    fn stty(&self, words: &[&str]) -> String {
        let path = self.terminal.as_ref().expect("a terminal");
        let path = fs::read_to_string(path).unwrap_or_default();
        let stty = machine::program("stty").expect("stty");
        let words = [&["-F", path.trim()], words].concat();
        machine::run(&stty, &words).unwrap_or_default()
    }

    /// Interrupts it as Ctrl-C does, and returns its output.
    pub(crate) async fn interrupt(self) -> String {
        if let Some(pid) = self.child.id() {
            machine::signal(pid, Signal::INT);
        }
        self.end().await.0
    }

    /// Its output and exit code, once it has ended.
    pub(crate) async fn end(mut self) -> (String, Option<i32>) {
        let ended = tokio::time::timeout(wait::timeout(), self.child.wait()).await;
        match ended {
            Ok(status) => (self.output(), ok(status).code()),
            Err(_) => (format!("{}\ndoes not end", self.output()), None),
        }
    }
}
