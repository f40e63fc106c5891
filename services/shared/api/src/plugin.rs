//! Programs that give the node its credentials: a kubeconfig's `exec`, as clouds have them. They are
//! run here, aside and with a deadline: one that hangs holds up nothing but the requests that need it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode, Kubeconfig};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kept;

/// A program that takes longer gives nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// One that gave no credentials is asked again after so long.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);
/// More than this is no answer.
const MOST_BYTES: u64 = 1 << 20;

/// Why a program gave no credentials. Nothing of its answer is in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PluginError {
    /// There is nothing to run.
    #[error("exec names no command")]
    NoCommand,
    /// A node has nobody to ask.
    #[error("{0:?} wants to talk to people (interactiveMode: Always)")]
    Interactive(String),
    /// `provideClusterInfo`, and the cluster makes no sense.
    #[error("what {0:?} is to know of the cluster cannot be read")]
    Cluster(String),
    /// The program is not there, or is none.
    #[error("{command:?} cannot be run: {why}")]
    Run {
        /// As the kubeconfig names it.
        command: String,
        /// What the system said.
        why: String,
    },
    /// No answer in time.
    #[error("{0:?} gave no answer within {seconds} s", seconds = PATIENCE.as_secs())]
    Patience(String),
    /// It failed; its own words are in the service's standard error.
    #[error("{command:?} ended with {status}")]
    Status {
        /// As the kubeconfig names it.
        command: String,
        /// `exit status: 1`.
        status: String,
    },
    /// What it wrote is no `ExecCredential` of the version that was asked for, or holds no credentials.
    #[error("{command:?}: {expected}")]
    Answer {
        /// As the kubeconfig names it.
        command: String,
        /// What was expected.
        expected: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Given>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    expiration_timestamp: Option<Timestamp>,
    #[serde(default)]
    token: String,
    #[serde(default)]
    client_certificate_data: String,
    #[serde(default)]
    client_key_data: String,
}

/// The programs that were run: one that has just failed is not run again at once.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// When it was, and why.
    failed: Option<(Instant, PluginError)>,
}

impl Programs {
    /// Puts what the kubeconfig's program gives in its place, if it names one. Tells when that ends,
    /// where the program says so.
    pub(crate) async fn stand_in(
        &mut self,
        kubeconfig: &mut Kubeconfig,
    ) -> Result<Option<Timestamp>, PluginError> {
        if let Some((at, error)) = &self.failed
            && at.elapsed() < AGAIN
        {
            return Err(error.clone());
        }
        let given = stand_in(kubeconfig).await;
        let failed = given.as_ref().err();
        self.failed = failed.map(|error| (Instant::now(), error.clone()));
        given
    }
}

/// Runs the program of the current context's user, if there is one, and puts what it gives in its
/// place. Tells when that ends, where the program says so.
async fn stand_in(kubeconfig: &mut Kubeconfig) -> Result<Option<Timestamp>, PluginError> {
    let Some(exec) = kept::user(kubeconfig).and_then(|user| user.exec.clone()) else {
        return Ok(None);
    };
    let given = ask(&exec, kubeconfig).await?;
    if let Some(user) = kept::user_mut(kubeconfig) {
        user.exec = None;
        if !given.token.is_empty() {
            user.token = Some(given.token.into());
        }
        if !given.client_certificate_data.is_empty() {
            (user.client_certificate, user.client_key) = (None, None);
            user.client_certificate_data = Some(STANDARD.encode(given.client_certificate_data));
            user.client_key_data = Some(STANDARD.encode(given.client_key_data).into());
        }
    }
    Ok(given.expiration_timestamp)
}

async fn ask(exec: &ExecConfig, kubeconfig: &Kubeconfig) -> Result<Given, PluginError> {
    let command = exec.command.clone().ok_or(PluginError::NoCommand)?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(PluginError::Interactive(command));
    }
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        let told = kept::cluster(kubeconfig).and_then(|it| ExecAuthCluster::try_from(it).ok());
        let told = told.and_then(|cluster| serde_json::to_value(cluster).ok());
        spec["cluster"] = told.ok_or_else(|| PluginError::Cluster(command.clone()))?;
    }
    let version = exec.api_version.clone().unwrap_or_default();
    let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
    let mut program = Command::new(&command);
    program.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            program.env(name, value);
        }
    }
    program.env("KUBERNETES_EXEC_INFO", info.to_string());
    let answer = timeout(PATIENCE, run(program, &command)).await;
    let answer = answer.map_err(|_| PluginError::Patience(command.clone()))??;
    read(&answer, &version).map_err(|expected| PluginError::Answer { command, expected })
}

async fn run(mut program: Command, command: &str) -> Result<Vec<u8>, PluginError> {
    let failed = |error: std::io::Error| PluginError::Run {
        command: command.to_owned(),
        why: error.to_string(),
    };
    program.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = program.kill_on_drop(true).spawn().map_err(failed)?;
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        let mut output = output.take(MOST_BYTES);
        output.read_to_end(&mut answer).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(answer);
    }
    Err(PluginError::Status {
        command: command.to_owned(),
        status: status.to_string(),
    })
}

fn read(answer: &[u8], version: &str) -> Result<Given, &'static str> {
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| "its answer is not an ExecCredential as JSON")?;
    if answer.kind != "ExecCredential" || answer.api_version != version {
        return Err("its answer is not an ExecCredential of the apiVersion that exec names");
    }
    let given = answer.status.ok_or("its answer holds no status")?;
    let pair = [&given.client_certificate_data, &given.client_key_data];
    if pair.iter().any(|half| half.is_empty()) != pair.iter().all(|half| half.is_empty()) {
        return Err("its answer holds a certificate or a key without the other");
    }
    if given.token.is_empty() && given.client_key_data.is_empty() {
        return Err("its answer holds neither a token nor a certificate");
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_as_upstream_takes_them() {
        let v1 = "client.authentication.k8s.io/v1";
        let answer = |status: &str| {
            format!(r#"{{"apiVersion":"{v1}","kind":"ExecCredential","status":{status}}}"#)
        };
        for (status, taken) in [
            (r#"{"token":"t"}"#, true),
            (
                r#"{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}"#,
                true,
            ),
            (r#"{"token":"t","expirationTimestamp":null}"#, true),
            (r#"{"clientCertificateData":"c","clientKeyData":"k"}"#, true),
            (r#"{"clientCertificateData":"c"}"#, false),
            (r#"{"token":"t","clientKeyData":"k"}"#, false),
            (r#"{"token":"t","expirationTimestamp":"soon"}"#, false),
            ("{}", false),
            ("null", false),
        ] {
            assert_eq!(
                read(answer(status).as_bytes(), v1).is_ok(),
                taken,
                "{status}"
            );
        }
        let good = answer(r#"{"token":"t"}"#);
        assert!(read(good.as_bytes(), "client.authentication.k8s.io/v1beta1").is_err());
        assert!(read(b"", v1).is_err() && read(b"token", v1).is_err());
    }
}
