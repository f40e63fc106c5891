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
            Observation::Failure(match String::from_utf8_lossy(&said) {
                // Upstream says nothing then.
                said if said.is_empty() => format!("exit code {}", output.exit_code),
                said => said.into_owned(),
            })
        }
        Err(error) if error.is_deadline() && begun.elapsed() < limit + RUNTIME_DELAY => {
            Observation::Failure(format!("command {:?} timed out", command.join(" ")))
        }
        Err(error) => Observation::Unknown(report(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands in real containers are run by the tests of whole nodes.
    #[tokio::test]
    async fn a_runtime_that_is_away_blames_no_container() {
        let second = Duration::from_secs(1);
        let absent = Runtime::connect("unix:///nonexistent/runtime.sock", second);
        let told = ask(&absent, "x", &["true".to_owned()], second).await;
        assert!(matches!(told, Observation::Unknown(_)), "{told:?}");
    }
}
