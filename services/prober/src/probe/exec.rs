//! `exec`: a command in the container succeeds with exit code 0.

use std::time::Duration;

use polylet_cri::RuntimeClient;
use polylet_schedule::go_duration;
use tokio::time::Instant;

use super::MAX_BODY;
use crate::core::types::ProbeOutput;

/// A runtime that takes this much longer than the command's timeout hangs itself, which is not the
/// container's failure. (Upstream counts it as one and restarts the container.)
const RUNTIME_GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn probe(
    runtime: &RuntimeClient,
    container_id: &str,
    command: &[String],
    timeout: Duration,
) -> ProbeOutput {
    let began = Instant::now();
    match runtime
        .exec_sync(container_id, command.to_vec(), Some(timeout))
        .await
    {
        Ok(output) if output.exit_code == 0 => ProbeOutput::Success,
        Ok(output) => {
            let mut text = output.stdout;
            text.extend(output.stderr);
            text.truncate(MAX_BODY);
            ProbeOutput::Failure(String::from_utf8_lossy(&text).into_owned())
        }
        Err(error) if error.is_deadline() && began.elapsed() < timeout + RUNTIME_GRACE => {
            let command = command.join(" ");
            let timeout = go_duration::format(Duration::from_secs(timeout.as_secs()));
            ProbeOutput::Failure(format!(
                "command timed out: {command:?} timed out after {timeout}"
            ))
        }
        Err(error) => ProbeOutput::Unknown(error.rpc_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end-to-end tests run commands in real containers.
    #[tokio::test]
    async fn result_is_unknown_while_the_runtime_is_unavailable() {
        let second = Duration::from_secs(1);
        let absent = RuntimeClient::connect("unix:///nonexistent/runtime.sock", second);
        let output = probe(&absent, "x", &["true".to_owned()], second).await;
        assert!(matches!(output, ProbeOutput::Unknown(_)), "{output:?}");
    }
}
