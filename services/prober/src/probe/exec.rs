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

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    /// In a running container of a real runtime, named by the environment.
    #[tokio::test]
    #[ignore = "needs POLYLET_TEST_CRI (endpoint) and POLYLET_TEST_CONTAINER (id of a running busybox)"]
    async fn commands_in_a_real_container() {
        let endpoint = std::env::var("POLYLET_TEST_CRI").unwrap();
        let container = std::env::var("POLYLET_TEST_CONTAINER").unwrap();
        let runtime = Runtime::connect(&endpoint, Duration::from_secs(20));
        let second = Duration::from_secs(1);
        let said = async |words: &[&str]| ask(&runtime, &container, &command(words), second).await;
        assert_eq!(said(&["true"]).await, Observation::Success);
        let failed = said(&["sh", "-c", "echo broken >&2; exit 3"]).await;
        assert_eq!(failed, Observation::Failure("broken\n".to_owned()));
        assert_eq!(
            said(&["false"]).await,
            Observation::Failure("exit code 1".to_owned())
        );
        assert!(
            matches!(said(&["sleep", "30"]).await, Observation::Failure(why) if why.contains("timed out"))
        );
        let missing = said(&["/no/such/program"]).await;
        assert!(matches!(missing, Observation::Unknown(_)), "{missing:?}");
        let nowhere = ask(&runtime, "no-such-container", &command(&["true"]), second).await;
        assert!(matches!(nowhere, Observation::Unknown(_)), "{nowhere:?}");
        let absent = Runtime::connect("unix:///nonexistent/runtime.sock", second);
        assert!(matches!(
            ask(&absent, "x", &command(&["true"]), second).await,
            Observation::Unknown(_)
        ));
    }
}
