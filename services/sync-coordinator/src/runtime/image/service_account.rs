//! Tokens of a pod's service account for credential provider plugins, requested for each call.

use std::collections::BTreeMap;

use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::IssueTokenRequest;
use serde::Deserialize;
use tonic::Status;

use super::super::{RuntimeManager, objects};
use crate::core::credentials::ServiceAccountRef;
use crate::core::credentials::provider::{ServiceAccountToken, TokenAttributes};

/// A token could not be issued, with the kubelet's messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    #[error("failed to get service account: {0}")]
    Get(String),
    #[error("failed to get service account: serviceaccounts {0:?} not found")]
    Absent(String),
    #[error("failed to get service account token: {0}")]
    Token(String),
}

#[derive(Deserialize)]
struct ServiceAccount {
    #[serde(default)]
    metadata: ServiceAccountMetadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ServiceAccountMetadata {
    uid: String,
    annotations: BTreeMap<String, String>,
}

/// A token of an account; `None` if the account lacks an annotation that the plugin requires.
pub(super) async fn issue_token(
    manager: &RuntimeManager,
    manifest: &Manifest,
    name: &str,
    attributes: &TokenAttributes,
) -> Result<Option<ServiceAccountToken>, AccountError> {
    let namespace = manifest.namespace();
    let message = |status: Status| status.message().to_owned();
    let object = objects::get(manager, manifest, "ServiceAccount", namespace, name).await;
    let object = object.map_err(|status| AccountError::Get(message(status)))?;
    let object = object.ok_or_else(|| AccountError::Absent(name.to_owned()))?;
    let account: ServiceAccount =
        serde_json::from_slice(&object).map_err(|error| AccountError::Get(error.to_string()))?;
    let metadata = account.metadata;
    let Some(annotations) = attributes.annotations(&metadata.annotations) else {
        return Ok(None);
    };
    let request = IssueTokenRequest {
        pod: Some(PodRef {
            uid: manifest.uid().to_string(),
            namespace: namespace.to_owned(),
            name: manifest.name().to_owned(),
        }),
        service_account: name.to_owned(),
        audiences: vec![attributes.audience.clone()],
        expiration_seconds: 0,
    };
    let issued = manager.objects.clone().issue_token(request).await;
    let issued = issued.map_err(|status| AccountError::Token(message(status)))?;
    Ok(Some(ServiceAccountToken {
        account: ServiceAccountRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: metadata.uid,
        },
        annotations,
        token: issued.into_inner().token,
    }))
}
