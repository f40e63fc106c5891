//! A command in the container.

use std::time::Duration;

use polylet_cri::Runtime;
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
            Observation::Failure(String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) if error.is_deadline() && begun.elapsed() < limit + RUNTIME_DELAY => {
            let (words, long) = (command.join(" "), length(limit.as_secs()));
            Observation::Failure(format!(
                "command timed out: {words:?} timed out after {long}"
            ))
        }
        Err(error) => Observation::Unknown(error.in_words()),
    }
}

/// Seconds as upstream prints them: 1s, 1m30s.
fn length(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_as_upstream_prints_them() {
        assert_eq!([1, 90, 3600].map(length), ["1s", "1m30s", "1h0m0s"]);
    }

    /// Commands in real containers are run by the tests of whole nodes.
    #[tokio::test]
    async fn a_runtime_that_is_away_blames_no_container() {
        let second = Duration::from_secs(1);
        let absent = Runtime::connect("unix:///nonexistent/runtime.sock", second);
        let told = ask(&absent, "x", &["true".to_owned()], second).await;
        assert!(matches!(told, Observation::Unknown(_)), "{told:?}");
    }
}
