//! Calls of `systemctl`. The program and not the bus: it exists wherever units do, works while the bus
//! restarts, and tests put another one first on `PATH`.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::core::takeover::UnitFacts;
use crate::core::unit_state::{self, UnitState};

/// Deadline of queries and of changes that do not wait for a process.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of a start, stop or restart: those of the units, and some time for systemd.
const JOB_TIMEOUT: Duration = Duration::from_secs(150);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SystemctlError {
    #[error("running systemctl {action}")]
    Run {
        action: String,
        #[source]
        source: std::io::Error,
    },
    #[error("systemctl {action} has not ended within {timeout:?}")]
    Timeout { action: String, timeout: Duration },
    #[error("systemctl {action}: {message}")]
    Failed { action: String, message: String },
}

/// The running systemd.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Systemctl;

impl Systemctl {
    /// The states of service units.
    pub(crate) async fn states(&self, units: &[String]) -> Result<Vec<UnitState>, SystemctlError> {
        let properties = format!("--property={}", unit_state::PROPERTIES);
        let mut args = vec!["show", properties.as_str(), "--"];
        args.extend(units.iter().map(String::as_str));
        Ok(unit_state::parse(&run(&args, TIMEOUT).await?))
    }

    /// Starts, stops, restarts, enables or disables units, and waits until it is done.
    pub(crate) async fn change(&self, verb: &str, units: &[&str]) -> Result<(), SystemctlError> {
        let mut args = vec![verb, "--"];
        args.extend_from_slice(units);
        run(&args, JOB_TIMEOUT).await.map(|_| ())
    }

    /// Restarts a unit; returns when the job is queued, as a service that never becomes ready would hold
    /// up the caller until its deadline.
    pub(crate) async fn restart(&self, unit: &str) -> Result<(), SystemctlError> {
        run(&["restart", "--no-block", "--", unit], TIMEOUT)
            .await
            .map(|_| ())
    }

    /// Reads the unit files again.
    pub(crate) async fn reload(&self) -> Result<(), SystemctlError> {
        run(&["daemon-reload"], JOB_TIMEOUT).await.map(|_| ())
    }

    /// The command of a unit, with the variables in it.
    pub(crate) async fn exec_start(&self, unit: &str) -> Result<String, SystemctlError> {
        run(&["show", "--property=ExecStart", "--", unit], TIMEOUT).await
    }

    /// The facts of one unit.
    pub(crate) async fn facts(&self, unit: &str) -> Result<UnitFacts, SystemctlError> {
        let properties = "--property=LoadState,ActiveState,UnitFileState,MainPID";
        let text = run(&["show", properties, "--", unit], TIMEOUT).await?;
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            let found = lines.find(|(known, _)| *known == name);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        Ok(UnitFacts {
            exists: !matches!(value("LoadState"), "not-found" | ""),
            is_active: matches!(value("ActiveState"), "active" | "activating" | "reloading"),
            is_enabled: matches!(value("UnitFileState"), "enabled" | "enabled-runtime"),
            pid: value("MainPID").parse().ok().filter(|pid| *pid > 0),
        })
    }
}

/// Runs systemctl and returns its output.
async fn run(args: &[&str], timeout: Duration) -> Result<String, SystemctlError> {
    let action = || args.join(" ");
    let mut command = Command::new("systemctl");
    command
        .arg("--no-pager")
        .arg("--no-ask-password")
        .args(args)
        .env("LC_ALL", "C")
        // Messages to our own service manager are ours.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(timeout, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) => {
            let action = action();
            return Err(SystemctlError::Run { action, source });
        }
        Err(_) => {
            let action = action();
            return Err(SystemctlError::Timeout { action, timeout });
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = match message.trim() {
        "" => output.status.to_string(),
        message => message.replace('\n', "; "),
    };
    Err(SystemctlError::Failed {
        action: action(),
        message,
    })
}
