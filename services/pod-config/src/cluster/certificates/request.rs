//! One PodCertificateRequest, from the key to its outcome.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_api::ApiErrorKind;
use polylet_kit::report;
use serde::Deserialize;
use serde_json::Value;

use super::CertificateDeps;
use super::key::{self, PrivateKey};
use crate::cluster::request::{self, ApiRequestError};
use crate::cluster::watcher::{self, EventHandler, WatchTarget};
use crate::core::cluster::certificate::{
    CertificateOutcome, DesiredCertificate, RequestIdentity, outcome, request,
};
use crate::core::cluster::kinds::percent_encode;

/// Sends requests for one certificate.
pub(super) struct CertificateRequest<'a> {
    pub(super) deps: &'a CertificateDeps,
    pub(super) desired: &'a DesiredCertificate,
}

#[derive(Deserialize)]
struct NamedObject {
    metadata: NamedMetadata,
}

#[derive(Deserialize, Default)]
struct NamedMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

impl CertificateRequest<'_> {
    /// Generates a key, creates a request and waits for its outcome; returns the request's name, the
    /// key and the outcome.
    pub(super) async fn issue(
        &self,
    ) -> Result<(String, String, CertificateOutcome), ApiRequestError> {
        let (pool, desired) = (&self.deps.pool, self.desired);
        if let Some(error) = pool.health.backing_off() {
            tracing::debug!(
                error,
                "API server is unavailable; certificate requests wait for it"
            );
            pool.health.wait_until_available().await;
        }
        let node_uid = self.node_uid().await?;
        let account = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}",
            percent_encode(&desired.namespace),
            percent_encode(&desired.account)
        );
        let account = pool.request_for_new_pod(&account, None).await;
        let account = account.map_err(|e| with_context("fetching service account", e))?;
        let account: NamedObject = request::parse(&account)?;
        let key = self.generate_key().await?;
        let identity = RequestIdentity {
            node: &self.deps.node_name,
            node_uid: &node_uid,
            account_uid: &account.metadata.uid,
        };
        let body = request(desired, identity, &STANDARD.encode(&key.stub_request)).to_string();
        let path = self.path();
        let created = pool.request_for_new_pod(&path, Some(&body)).await;
        let created = created.map_err(|e| with_context("creating PodCertificateRequest", e))?;
        let created: NamedObject = request::parse(&created)?;
        let name = created.metadata.name;
        let outcome = self.wait_for_outcome(&name).await?;
        Ok((name, key.pem, outcome))
    }

    /// Generates a key on a thread that may block.
    async fn generate_key(&self) -> Result<PrivateKey, ApiRequestError> {
        let key_type = self.desired.key_type.clone();
        let permit = match key::is_slow(&key_type) {
            true => self.deps.slow_keys.clone().acquire_owned().await.ok(),
            false => None,
        };
        let work = move || {
            let key = key::generate(&key_type);
            // Held by the work itself, which goes on when its waiter is cancelled.
            drop(permit);
            key
        };
        let key = tokio::task::spawn_blocking(work).await;
        let key = key.map_err(|error| local_error(report(&error)))?;
        key.map_err(|error| local_error(report(&error)))
    }

    fn path(&self) -> String {
        let namespace = percent_encode(&self.desired.namespace);
        format!("/apis/certificates.k8s.io/v1beta1/namespaces/{namespace}/podcertificaterequests")
    }

    async fn node_uid(&self) -> Result<String, ApiRequestError> {
        let mut node = self.deps.node.clone();
        let node = node.wait_for(|node| matches!(node, Some(Some(_)))).await;
        let node = node.map_err(|_| local_error("stopping"))?.clone();
        let node = node.flatten().unwrap_or_else(|| "{}".into());
        let node: NamedObject = request::parse(&node)?;
        Ok(node.metadata.uid)
    }

    /// Watches the request until it has an outcome. A node may watch its own requests only.
    async fn wait_for_outcome(&self, name: &str) -> Result<CertificateOutcome, ApiRequestError> {
        let selector = format!("{},metadata.name={name}", self.deps.node_name);
        let target = WatchTarget {
            path: self.path(),
            selector: Some(("spec.nodeName", selector)),
            name: None,
        };
        let mut handler = OutcomeHandler::default();
        watcher::watch(&self.deps.pool, &target, &mut handler).await;
        handler.outcome.ok_or_else(|| {
            let namespace = &self.desired.namespace;
            local_error(format!(
                "PodCertificateRequest \"{namespace}/{name}\" appears to have been deleted"
            ))
        })
    }
}

/// Receives the outcome of a request.
#[derive(Default)]
struct OutcomeHandler {
    outcome: Option<CertificateOutcome>,
    deleted: bool,
}

impl EventHandler for OutcomeHandler {
    async fn handle_list(&mut self, objects: &mut (dyn Iterator<Item = Value> + Send)) {
        match objects.next() {
            Some(request) => self.handle_upsert(request),
            None => self.deleted = true,
        }
    }

    fn handle_upsert(&mut self, object: Value) {
        self.outcome = outcome(object);
    }

    fn handle_delete(&mut self, _: Value) {
        self.deleted = true;
    }

    fn handle_error(&mut self, error: &ApiRequestError) {
        tracing::debug!(%error, "failed to watch PodCertificateRequest; retrying");
    }

    fn handle_slow_start(&mut self) {}

    fn is_complete(&self) -> bool {
        self.deleted || self.outcome.is_some()
    }
}

fn with_context(operation: &str, error: ApiRequestError) -> ApiRequestError {
    ApiRequestError {
        message: format!("while {operation}: {}", error.message),
        ..error
    }
}

fn local_error(message: impl Into<String>) -> ApiRequestError {
    ApiRequestError::new(ApiErrorKind::ServerError, message)
}
