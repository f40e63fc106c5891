//! A task that behaves as it is asked to.

use std::process::{Command, Stdio};
use std::time::Duration;

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use serde::{Deserialize, Serialize};

/// What the task does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MisbehavingTask {
    /// Returns the text.
    Echo(String),
    /// Reports its process id, then waits for ever.
    Hang(String),
    /// Starts a program that waits, reports its process id, and waits for it.
    Program,
    /// Reports progress for so many steps of 110 ms.
    Slow(u32),
    /// Panics at once.
    Panic,
    /// Ends at once.
    Exit,
}

impl SubprocessTask for MisbehavingTask {
    const NAME: &'static str = "misbehave";
    type Progress = u32;
    type Output = Result<String, String>;

    fn key(&self) -> String {
        match self {
            Self::Echo(key) | Self::Hang(key) => key.chars().take(10).collect(),
            other => format!("{other:?}"),
        }
    }

    fn run(self, progress: &mut TaskProgress<u32>) -> Self::Output {
        let step = Duration::from_millis(110);
        match self {
            Self::Echo(text) => Ok(text),
            Self::Hang(_) => loop {
                std::thread::park_timeout(step);
                progress.report(std::process::id);
                std::thread::park();
            },
            Self::Program => {
                let sleep = Command::new("sleep")
                    .arg("1000")
                    .stdout(Stdio::null())
                    .spawn();
                let mut sleep = sleep.map_err(|error| error.to_string())?;
                std::thread::park_timeout(step);
                progress.report(|| sleep.id());
                sleep.wait().map_err(|error| error.to_string())?;
                Ok(String::new())
            }
            Self::Slow(steps) => {
                for step_number in 0..steps {
                    std::thread::park_timeout(step);
                    progress.report(|| step_number);
                }
                Ok("done".to_owned())
            }
            Self::Panic => panic!("on purpose"),
            Self::Exit => std::process::exit(3),
        }
    }
}
