//! A pod's service account, for a plugin that wants a token of it: asked for anew for each question.

use std::collections::BTreeMap;

use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::IssueTokenRequest;
use serde::Deserialize;
use tonic::Status;

use super::super::{Hands, object};
use crate::core::credentials::AccountRef;
use crate::core::credentials::provider::{Account, ServiceAccount};

/// Why a plugin cannot be told of a pod's account.
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
struct Written {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    uid: String,
    annotations: BTreeMap<String, String>,
}

/// The account of this name and a token of it; none where it lacks an annotation that the plugin
/// requires, by which accounts say that it is for them.
pub(super) async fn of(
    hands: &Hands,
    manifest: &Manifest,
    name: &str,
    wanted: &ServiceAccount,
) -> Result<Option<Account>, AccountError> {
    let namespace = manifest.namespace();
    let said = |status: Status| status.message().to_owned();
    let found = object::get(hands, manifest, "ServiceAccount", namespace, name).await;
    let found = found.map_err(|status| AccountError::Get(said(status)))?;
    let found = found.ok_or_else(|| AccountError::Absent(name.to_owned()))?;
    let found: Written =
        serde_json::from_slice(&found).map_err(|error| AccountError::Get(error.to_string()))?;
    let metadata = found.metadata;
    let Some(annotations) = wanted.annotations(&metadata.annotations) else {
        return Ok(None);
    };
    let request = IssueTokenRequest {
        pod: Some(PodRef {
            uid: manifest.uid().to_string(),
            namespace: namespace.to_owned(),
            name: manifest.name().to_owned(),
        }),
        service_account: name.to_owned(),
        audiences: vec![wanted.audience.clone()],
        expiration_seconds: 0,
    };
    let issued = hands.objects.clone().issue_token(request).await;
    let issued = issued.map_err(|status| AccountError::Token(said(status)))?;
    Ok(Some(Account {
        of: AccountRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: metadata.uid,
        },
        annotations,
        token: issued.into_inner().token,
    }))
}
