//! Whether another program could continue in this process: it is asked to read the state, the configuration
//! and its services' programs, before the point of no return.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::core::handover::HandoverState;

/// The option of a program that is only to check. The arguments that it would run with follow.
pub(crate) const OPTION: &str = "--handover-check";
/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest output that is read, in bytes.
const MAX_OUTPUT: u64 = 4096;

/// Why a program could not continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    State(#[from] super::ReplaceError),
    #[error("running {path} {OPTION}")]
    Run {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} {OPTION} did not end within {TIMEOUT:?}")]
    Timeout { path: PathBuf },
    #[error("{path} could not take over the services ({status}): {message}")]
    Refused {
        path: PathBuf,
        status: ExitStatus,
        message: String,
    },
    #[error("{path} did not confirm that it can take over the services")]
    Unconfirmed { path: PathBuf },
}

/// What a program prints that could continue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Confirmation {
    /// The services that it would take over.
    pub(crate) adopted_services: usize,
}

/// Asks a program, under the name that selects it in a multicall binary.
pub(crate) async fn check(
    name: &Path,
    program: &Path,
    state: &HandoverState,
) -> Result<(), CheckError> {
    let path = || program.to_owned();
    let file = super::replace::state_file(state)?;
    let checked = tokio::time::timeout(TIMEOUT, run(name, program, file)).await;
    let ran = checked.map_err(|_| CheckError::Timeout { path: path() })?;
    let (status, output, message) = ran.map_err(|source| CheckError::Run {
        path: path(),
        source,
    })?;
    if !status.success() {
        return Err(CheckError::Refused {
            path: path(),
            status,
            message: String::from_utf8_lossy(&message).trim().to_owned(),
        });
    }
    let confirmed: Option<Confirmation> = serde_json::from_slice(&output).ok();
    match confirmed {
        Some(confirmed) if confirmed.adopted_services == state.services.len() => Ok(()),
        _ => Err(CheckError::Unconfirmed { path: path() }),
    }
}

async fn run(
    name: &Path,
    program: &Path,
    state: File,
) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg0(name)
        .arg(OPTION)
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::from(state))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (output, message) = (child.stdout.take(), child.stderr.take());
    let (output, message) = futures::join!(read(output), read(message));
    Ok((child.wait().await?, output?, message?))
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_OUTPUT).read_to_end(&mut text).await?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::core::handover::ServiceHandover;

    async fn checked(script: &str) -> Result<(), CheckError> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("polylet");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let state = HandoverState::new(vec![ServiceHandover::default()]);
        check(Path::new("polylet"), &program, &state).await
    }

    #[tokio::test]
    async fn a_program_has_to_read_the_state_and_confirm() {
        let reads =
            r#"test $1 = --handover-check && grep -q '"format":1' && echo '{"adoptedServices":1}'"#;
        checked(reads).await.unwrap();
        let error = |found: Result<_, CheckError>| found.unwrap_err();
        for (script, expected) in [
            ("exit 0", "did not confirm"),
            (r#"echo '{"adoptedServices":2}'"#, "did not confirm"),
            ("echo why >&2; exit 64", "(exit status: 64): why"),
        ] {
            let found = error(checked(script).await).to_string();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_killed() {
        let found = checked("exec sleep 3600").await.unwrap_err();
        assert!(matches!(found, CheckError::Timeout { .. }), "{found}");
    }
}
