//! A command in the container.

use std::time::Duration;

use polylet_cri::Runtime;
use polylet_kit::report;
use tokio::time::Instant;

use super::MAX_BODY;
use crate::core::types::Observation;

/// A runtime that needs this much longer than the command's time is stuck itself: upstream blames
/// the container for it, and restarts it.
const RUNTIME_DELAY: Duration = Duration::from_secs(10);

pub(crate) async fn ask(
    runtime: &Runtime,
    container: &str,
    command: &[String],
    limit: Duration,
) -> Observation {
    let begun = Instant::now();
    match runtime
        .exec_sync(container, command.to_vec(), Some(limit))
        .await
    {
        Ok(output) if output.exit_code == 0 => Observation::Success,
        Ok(output) => {
            let mut said = output.stdout;
            said.extend(output.stderr);
            said.truncate(MAX_BODY);
            let said = String::from_utf8_lossy(&said);
            Observation::Failure(format!("exit code {}: {}", output.exit_code, said.trim()))
        }
        Err(error) if error.is_deadline() && begun.elapsed() < limit + RUNTIME_DELAY => {
            Observation::Failure(format!("command {command:?} timed out after {limit:?}"))
        }
        Err(error) => Observation::Unknown(report(&error)),
    }
}
