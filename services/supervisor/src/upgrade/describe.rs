//! The descriptor of a program, which the program itself prints.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::core::upgrade::program::ProgramDescriptor;

/// How long a program may take to print its descriptor.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest output, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024;

/// Why the descriptor of a program is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DescribeError {
    #[error("running {path} --descriptor")]
    Run {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} --descriptor did not end within {TIMEOUT:?}")]
    Timeout { path: PathBuf },
    #[error("{path} --descriptor: {status}")]
    Status {
        path: PathBuf,
        status: std::process::ExitStatus,
    },
    #[error("{path} --descriptor did not print a descriptor")]
    Decode {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// Between two attempts to execute a program that is still open for writing, within [`TIMEOUT`].
const BUSY_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a program under the name of a service's program, which selects the service in a multicall binary.
pub(crate) async fn describe(
    name: &Path,
    program: &Path,
) -> Result<ProgramDescriptor, DescribeError> {
    let path = || program.to_owned();
    let described = tokio::time::timeout(TIMEOUT, run(name, program)).await;
    let ran = described.map_err(|_| DescribeError::Timeout { path: path() })?;
    let (output, status) = ran.map_err(|source| DescribeError::Run {
        path: path(),
        source,
    })?;
    if !status.success() {
        return Err(DescribeError::Status {
            path: path(),
            status,
        });
    }
    let decoded = serde_json::from_slice(&output);
    decoded.map_err(|source| DescribeError::Decode {
        path: path(),
        source,
    })
}

async fn run(name: &Path, program: &Path) -> std::io::Result<(Vec<u8>, std::process::ExitStatus)> {
    let mut command = Command::new(program);
    command
        .arg0(name)
        .arg("--descriptor")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = loop {
        match command.spawn() {
            // Whoever has written it may have started a process meanwhile, which has the file open until it
            // executes its own program.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                tokio::time::sleep(BUSY_INTERVAL).await;
            }
            spawned => break spawned?,
        }
    };
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
    }
    Ok((output, child.wait().await?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn described(script: &str) -> Result<ProgramDescriptor, DescribeError> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        describe(Path::new("polylet-pleg"), &program).await
    }

    #[tokio::test]
    async fn a_descriptor_is_what_the_program_prints() {
        let json =
            r#"{"service":"pleg","version":"1","serves":[],"calls":[],"state_files":[],"more":1}"#;
        let found = described(&format!("test $1 = --descriptor && echo '{json}'")).await;
        assert_eq!(found.unwrap().service, "pleg");
    }

    #[tokio::test]
    async fn programs_that_print_none_are_named() {
        let error = |found: Result<_, DescribeError>| found.unwrap_err();
        let found = error(described("exit 64").await);
        assert!(matches!(found, DescribeError::Status { .. }), "{found}");
        let found = error(described("echo '{}'").await);
        assert!(matches!(found, DescribeError::Decode { .. }), "{found}");
        // More than is read: the program gets a broken pipe.
        let found = error(described("exec cat /dev/zero").await);
        assert!(matches!(found, DescribeError::Status { .. }), "{found}");
        let missing = describe(Path::new("x"), Path::new("/nonexistent")).await;
        assert!(matches!(error(missing), DescribeError::Run { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_killed() {
        let found = described("exec sleep 3600").await.unwrap_err();
        assert!(matches!(found, DescribeError::Timeout { .. }), "{found}");
    }
}
