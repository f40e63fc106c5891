//! Credential plugins: programs named by `exec` in a kubeconfig, as cloud providers have them.
//!
//! A plugin runs with a deadline and without blocking anything but the requests that need its
//! credentials.

use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode, Kubeconfig};
use serde::Deserialize;
use serde_json::{Map, json};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kubeconfig::{current_cluster, current_user, current_user_mut};

const TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a plugin runs again after it failed.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// A plugin that returned no credentials. Nothing of its output is in the message.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PluginError {
    /// `exec` has no command.
    #[error("exec names no command")]
    NoCommand,
    /// The plugin needs a terminal, which a node agent does not have.
    #[error("{0:?} requires interactive mode (interactiveMode: Always)")]
    Interactive(String),
    /// `provideClusterInfo` is set, and the cluster of the kubeconfig is invalid.
    #[error("reading the cluster information for {0:?}")]
    ClusterInfo(String),
    /// The plugin could not be started.
    #[error("starting {command:?}: {reason}")]
    Start {
        /// The command in the kubeconfig.
        command: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The plugin did not finish in time.
    #[error("{0:?} did not finish within {seconds} s", seconds = TIMEOUT.as_secs())]
    Timeout(String),
    /// The plugin failed; its own messages are in the service's standard error.
    #[error("{command:?} failed with {status}")]
    ExitStatus {
        /// The command in the kubeconfig.
        command: String,
        /// `exit status: 1`.
        status: String,
    },
    /// The output is not an `ExecCredential` of the requested version, or has no credentials.
    #[error("{command:?}: {reason}")]
    InvalidOutput {
        /// The command in the kubeconfig.
        command: String,
        /// The part that is missing or invalid.
        reason: &'static str,
    },
}

/// The output of a plugin, an object of `client.authentication.k8s.io`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecCredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    #[serde(default)]
    token: String,
    #[serde(default)]
    client_certificate_data: String,
    #[serde(default)]
    client_key_data: String,
}

/// Runs plugins, and not more often than every [`RETRY_DELAY`] while they fail.
#[derive(Debug, Default)]
pub(crate) struct PluginRunner {
    last_failure: Option<(Instant, PluginError)>,
}

impl PluginRunner {
    /// Runs the plugin of the current context's user, if there is one, and puts its credentials into
    /// the kubeconfig. Returns their expiry, if the plugin gives one.
    pub(crate) async fn apply(
        &mut self,
        kubeconfig: &mut Kubeconfig,
    ) -> Result<Option<Timestamp>, PluginError> {
        if let Some((at, error)) = &self.last_failure
            && at.elapsed() < RETRY_DELAY
        {
            return Err(error.clone());
        }
        let result = apply(kubeconfig).await;
        let error = result.as_ref().err();
        self.last_failure = error.map(|error| (Instant::now(), error.clone()));
        result
    }
}

async fn apply(kubeconfig: &mut Kubeconfig) -> Result<Option<Timestamp>, PluginError> {
    let Some(exec) = current_user(kubeconfig).and_then(|user| user.exec.clone()) else {
        return Ok(None);
    };
    let credentials = request(&exec, kubeconfig).await?;
    if let Some(user) = current_user_mut(kubeconfig) {
        user.exec = None;
        if !credentials.token.is_empty() {
            user.token = Some(credentials.token.into());
        }
        if !credentials.client_certificate_data.is_empty() {
            let certificate = STANDARD.encode(credentials.client_certificate_data);
            let key = STANDARD.encode(credentials.client_key_data);
            (user.client_certificate, user.client_key) = (None, None);
            user.client_certificate_data = Some(certificate);
            user.client_key_data = Some(key.into());
        }
    }
    Ok(credentials.expiration_timestamp)
}

async fn request(
    exec: &ExecConfig,
    kubeconfig: &Kubeconfig,
) -> Result<ExecCredentialStatus, PluginError> {
    let command = exec.command.clone().ok_or(PluginError::NoCommand)?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(PluginError::Interactive(command));
    }
    let mut spec = Map::from_iter([("interactive".to_owned(), false.into())]);
    if exec.provide_cluster_info {
        let cluster = current_cluster(kubeconfig);
        let cluster = cluster.and_then(|cluster| ExecAuthCluster::try_from(cluster).ok());
        let cluster = cluster.and_then(|cluster| serde_json::to_value(cluster).ok());
        let cluster = cluster.ok_or_else(|| PluginError::ClusterInfo(command.clone()))?;
        spec.insert("cluster".to_owned(), cluster);
    }
    let version = exec.api_version.clone().unwrap_or_default();
    let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
    let mut plugin = Command::new(&command);
    plugin.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            plugin.env(name, value);
        }
    }
    plugin.env("KUBERNETES_EXEC_INFO", info.to_string());
    let output = timeout(TIMEOUT, run(plugin, &command)).await;
    let output = output.map_err(|_| PluginError::Timeout(command.clone()))??;
    parse(&output, &version).map_err(|reason| PluginError::InvalidOutput { command, reason })
}

async fn run(mut plugin: Command, command: &str) -> Result<Vec<u8>, PluginError> {
    let failed = |error: std::io::Error| PluginError::Start {
        command: command.to_owned(),
        reason: error.to_string(),
    };
    plugin.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = plugin.kill_on_drop(true).spawn().map_err(failed)?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = stdout.take(MAX_OUTPUT_BYTES);
        stdout.read_to_end(&mut output).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(output);
    }
    Err(PluginError::ExitStatus {
        command: command.to_owned(),
        status: status.to_string(),
    })
}

pub(crate) fn parse(output: &[u8], version: &str) -> Result<ExecCredentialStatus, &'static str> {
    let credential: ExecCredential =
        serde_json::from_slice(output).map_err(|_| "output is not an ExecCredential as JSON")?;
    if credential.kind != "ExecCredential" || credential.api_version != version {
        return Err("output is not an ExecCredential of the apiVersion in exec");
    }
    let status = credential.status.ok_or("output has no status")?;
    let pair = [&status.client_certificate_data, &status.client_key_data];
    if pair.iter().any(|half| half.is_empty()) != pair.iter().all(|half| half.is_empty()) {
        return Err("output has a certificate or a key without the other");
    }
    if status.token.is_empty() && status.client_key_data.is_empty() {
        return Err("output has neither a token nor a certificate");
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_accepted_as_upstream_accepts_it() {
        let v1 = "client.authentication.k8s.io/v1";
        let output = |status: &str| {
            format!(r#"{{"apiVersion":"{v1}","kind":"ExecCredential","status":{status}}}"#)
        };
        for (status, accepted) in [
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
                parse(output(status).as_bytes(), v1).is_ok(),
                accepted,
                "{status}"
            );
        }
        let valid = output(r#"{"token":"t"}"#);
        assert!(parse(valid.as_bytes(), "client.authentication.k8s.io/v1beta1").is_err());
        assert!(parse(b"", v1).is_err() && parse(b"token", v1).is_err());
    }
}
