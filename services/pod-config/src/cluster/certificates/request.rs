//! One PodCertificateRequest, from the key to what the signer says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_api::Refusal;
use polylet_kit::report;
use serde::Deserialize;
use serde_json::Value;

use super::Means;
use super::key::{self, Key};
use crate::cluster::follow::{Ear, Followed, follow};
use crate::cluster::request::{self, Failure};
use crate::core::cluster::certificate::{Asking, Outcome, Wanted, outcome, request};
use crate::core::cluster::kinds::encoded;

/// What asks.
pub(super) struct Asks<'a> {
    pub(super) means: &'a Means,
    pub(super) of: &'a Wanted,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

impl Asks<'_> {
    /// Makes a key, asks, and waits for what comes of it: the request's name, the key, the outcome.
    pub(super) async fn once(&self) -> Result<(String, String, Outcome), Failure> {
        let (lines, of) = (&self.means.lines, self.of);
        if let Some(message) = lines.trouble.shut() {
            tracing::debug!("certificates wait for the API server: {message}");
            lines.trouble.open().await;
        }
        let node_uid = self.node_uid().await?;
        let account = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}",
            encoded(&of.namespace),
            encoded(&of.account)
        );
        let account = lines.patiently(&account, None).await;
        let account = account.map_err(|failure| about("fetching service account", failure))?;
        let account: Named = request::read(&account)?;
        let key = self.key().await?;
        let by = Asking {
            node: &self.means.name,
            node_uid: &node_uid,
            account_uid: &account.metadata.uid,
        };
        let asked = request(of, by, &STANDARD.encode(&key.stub)).to_string();
        let path = self.path();
        let made = lines.patiently(&path, Some(&asked)).await;
        let made = made.map_err(|failure| about("creating PodCertificateRequest", failure))?;
        let made: Named = request::read(&made)?;
        let name = made.metadata.name;
        let outcome = self.awaited(&name).await?;
        Ok((name, key.pem, outcome))
    }

    /// Makes a key, aside.
    async fn key(&self) -> Result<Key, Failure> {
        let kind = self.of.key_type.clone();
        let turn = match key::is_slow(&kind) {
            true => self.means.slow.clone().acquire_owned().await.ok(),
            false => None,
        };
        let work = move || {
            let made = key::make(&kind);
            // Not before: whoever awaits the key may be gone meanwhile.
            drop(turn);
            made
        };
        let made = tokio::task::spawn_blocking(work).await;
        let made = made.map_err(|error| broken(report(&error)))?;
        made.map_err(|error| broken(report(&error)))
    }

    fn path(&self) -> String {
        let namespace = encoded(&self.of.namespace);
        format!("/apis/certificates.k8s.io/v1beta1/namespaces/{namespace}/podcertificaterequests")
    }

    async fn node_uid(&self) -> Result<String, Failure> {
        let mut node = self.means.node.clone();
        let node = node.wait_for(|node| matches!(node, Some(Some(_)))).await;
        let node = node.map_err(|_| broken("stopping".to_owned()))?.clone();
        let node = node.flatten().unwrap_or_else(|| "{}".into());
        let node: Named = request::read(node.as_bytes())?;
        Ok(node.metadata.uid)
    }

    /// Watches the request until it is decided; a node may watch only its own.
    async fn awaited(&self, name: &str) -> Result<Outcome, Failure> {
        let followed = Followed {
            path: self.path(),
            by: Some((
                "spec.nodeName",
                format!("{},metadata.name={name}", self.means.name),
            )),
            name: None,
        };
        let mut waits = Waits::default();
        follow(&self.means.lines, &followed, &mut waits).await;
        waits.outcome.ok_or_else(|| {
            let namespace = &self.of.namespace;
            broken(format!(
                "PodCertificateRequest \"{namespace}/{name}\" appears to have been deleted"
            ))
        })
    }
}

/// Waits for the end of a request.
#[derive(Default)]
struct Waits {
    outcome: Option<Outcome>,
    gone: bool,
}

impl Ear for Waits {
    async fn whole(&mut self, all: &mut (dyn Iterator<Item = Value> + Send)) {
        match all.next() {
            Some(request) => self.changed(request),
            None => self.gone = true,
        }
    }

    fn changed(&mut self, object: Value) {
        self.outcome = outcome(object);
    }

    fn gone(&mut self, _: Value) {
        self.gone = true;
    }

    fn failed(&mut self, failure: &Failure) {
        tracing::debug!("a PodCertificateRequest is out of sight: {failure}");
    }

    fn late(&mut self) {}

    fn enough(&self) -> bool {
        self.gone || self.outcome.is_some()
    }
}

fn about(what: &str, failure: Failure) -> Failure {
    Failure {
        message: format!("while {what}: {}", failure.message),
        ..failure
    }
}

fn broken(message: String) -> Failure {
    Failure {
        refusal: Refusal::Broken,
        message,
        unserved: false,
    }
}
