use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use polylet_harness::build::BuildProgress;

/// How often a build prints its progress where there is no terminal to overwrite a line on.
const BUILD_LINE_PERIOD: Duration = Duration::from_secs(10);

/// The numbered steps of the demo.
#[derive(Debug)]
pub(crate) struct DemoSteps {
    started: u32,
    total: u32,
}

impl DemoSteps {
    pub(crate) fn new(total: u32) -> Self {
        Self { started: 0, total }
    }

    pub(crate) fn start(&mut self, title: &str) -> DemoStep {
        self.started += 1;
        println!("\n[{}/{}] {title}", self.started, self.total);
        DemoStep {
            started: Instant::now(),
        }
    }
}

/// A step in progress.
#[derive(Debug)]
pub(crate) struct DemoStep {
    started: Instant,
}

impl DemoStep {
    /// Prints the result and the time the step took.
    pub(crate) fn finish(self, result: &str) {
        line(&format!(
            "{result} ({:.1} s)",
            self.started.elapsed().as_secs_f64()
        ));
    }
}

/// An indented line within a step.
pub(crate) fn line(text: &str) {
    println!("      {text}");
}

/// The progress of a build: one line, overwritten on a terminal, repeated elsewhere.
#[derive(Debug)]
pub(crate) struct BuildLine {
    started: Instant,
    printed: Cell<Option<Instant>>,
    is_terminal: bool,
}

impl BuildLine {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            printed: Cell::new(None),
            is_terminal: std::io::stdout().is_terminal(),
        }
    }

    pub(crate) fn show(&self, progress: &BuildProgress) {
        let is_due = self
            .printed
            .get()
            .is_none_or(|printed| printed.elapsed() >= BUILD_LINE_PERIOD);
        if !self.is_terminal && !is_due {
            return;
        }
        self.printed.set(Some(Instant::now()));
        let text = self.text(progress);
        if self.is_terminal {
            print!("\r\x1b[K      {text}");
            // A line that does not appear at once is no loss.
            let _ = std::io::stdout().flush();
        } else {
            line(&text);
        }
    }

    /// Leaves the line that was overwritten.
    pub(crate) fn finish(&self) {
        if self.is_terminal && self.printed.get().is_some() {
            println!();
        }
    }

    fn text(&self, progress: &BuildProgress) -> String {
        let BuildProgress {
            compiled,
            total,
            package,
        } = progress;
        let percent = 100 * compiled / (*total).max(1);
        let seconds = self.started.elapsed().as_secs();
        format!("{percent:>3} %  {compiled} of {total} packages, {seconds} s: {package}")
    }
}
