use std::io::Stdout;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{self, ChildMessage};

/// The shortest time between two messages of progress.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);
/// The longest time without progress, unless the task says otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

/// Work for a child process.
pub trait SubprocessTask: Serialize + DeserializeOwned {
    /// The name, unique in the service.
    const NAME: &'static str;
    /// What is reported on the way; `()` for nothing.
    type Progress: Serialize + DeserializeOwned;
    /// The output. A failure of the task itself is a value of it.
    type Output: Serialize + DeserializeOwned;

    /// The resource that may not answer: only one child of this name and key exists at a time.
    fn key(&self) -> String;

    /// The longest time without progress.
    fn deadline(&self) -> Duration {
        DEADLINE
    }

    /// Does the work, in the child.
    fn run(self, progress: &mut TaskProgress<Self::Progress>) -> Self::Output;
}

/// Reports the progress of a task to the parent process.
#[derive(Debug)]
pub struct TaskProgress<P> {
    output: Option<Stdout>,
    last: Instant,
    kind: PhantomData<P>,
}

impl<P: Serialize> TaskProgress<P> {
    /// Reports to nobody: for tasks that run in this process.
    pub fn none() -> Self {
        Self::new(None)
    }

    pub(super) fn to_parent(output: Stdout) -> Self {
        Self::new(Some(output))
    }

    fn new(output: Option<Stdout>) -> Self {
        Self {
            output,
            last: Instant::now(),
            kind: PhantomData,
        }
    }

    /// Reports progress. Cheap enough for each step of a walk: most calls do nothing.
    pub fn report(&mut self, progress: impl FnOnce() -> P) {
        let Some(output) = &self.output else {
            return;
        };
        let now = Instant::now();
        if now.duration_since(self.last) < PROGRESS_PERIOD {
            return;
        }
        self.last = now;
        let message = ChildMessage::<P, ()>::Progress(progress());
        if protocol::write(output, &message).is_err() {
            // Nobody waits for the output any more.
            std::process::exit(1);
        }
    }
}
