use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Instant;

use futures::FutureExt;

/// The named steps of one test: the output says which step failed, and independent steps still run
/// after a failure.
#[derive(Debug, Default)]
pub struct Steps {
    failed: Vec<String>,
}

impl Steps {
    /// No steps yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a step that the following ones do not depend on. Returns whether it passed.
    pub async fn run(&mut self, name: &str, step: impl Future<Output = ()>) -> bool {
        let passed = timed(name, step).await.is_ok();
        if !passed {
            self.failed.push(name.to_owned());
        }
        passed
    }

    /// Runs a step that the following ones depend on and returns its value.
    ///
    /// # Panics
    /// When the step does.
    pub async fn require<T>(&mut self, name: &str, step: impl Future<Output = T>) -> T {
        match timed(name, step).await {
            Ok(value) => value,
            Err(panic) => {
                self.failed.push(name.to_owned());
                eprintln!("failed steps: {}", self.failed.join(", "));
                resume_unwind(panic)
            }
        }
    }

    /// Ends the test.
    ///
    /// # Panics
    /// When a step failed, with the names of all that did.
    pub fn finish(self) {
        assert!(
            self.failed.is_empty(),
            "failed steps: {}",
            self.failed.join(", ")
        );
    }
}

async fn timed<T>(name: &str, step: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let started = Instant::now();
    let result = AssertUnwindSafe(step).catch_unwind().await;
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!(
        "step {name} ... {verdict} ({:.1} s)",
        started.elapsed().as_secs_f64()
    );
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_after_a_failure_run_and_finish_names_the_failed_one() {
        let mut steps = Steps::new();
        let mut ran = false;
        assert!(!steps.run("fails", async { panic!("on purpose") }).await);
        assert!(steps.run("passes", async { ran = true }).await);
        assert!(ran);
        let finished = std::panic::catch_unwind(|| steps.finish());
        let panic = finished.expect_err("a failed step");
        let message = panic.downcast_ref::<String>().expect("a message");
        assert_eq!(message, "failed steps: fails");
    }
}
