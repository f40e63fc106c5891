//! Whether a pod may use an image that is present on the node.
//!
//! An image that was pulled with one pod's credentials is not available to every pod. Records store
//! the credentials of each pull; a pod without any of them must pull the image with its own, which
//! the registry then verifies. Format and rules are upstream's (`KubeletEnsureSecretPulledImages`),
//! so that records survive a switch between agents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::image;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::core::credentials::{Credential, CredentialSource, Login, ServiceAccountRef};

/// The most Secrets that are recorded for one image.
const MAX_SECRETS: usize = 100;

/// `imagePullCredentialsVerificationPolicy`: which images require verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// No image.
    NeverVerify,
    /// Images that this node has pulled.
    NeverVerifyPreloaded,
    /// All images but those of a list of names, or of prefixes that end in `/*`.
    NeverVerifyAllowlisted(Vec<String>),
    /// Every image.
    AlwaysVerify,
}

impl VerificationPolicy {
    /// The policy of this name.
    pub fn from_name(name: &str, list: &[String]) -> Self {
        match name {
            "NeverVerify" => VerificationPolicy::NeverVerify,
            "NeverVerifyAllowlistedImages" => {
                VerificationPolicy::NeverVerifyAllowlisted(list.to_vec())
            }
            "AlwaysVerify" => VerificationPolicy::AlwaysVerify,
            _ => VerificationPolicy::NeverVerifyPreloaded,
        }
    }

    /// Whether a pod's access to an image must be verified. `pulled`: this node has pulled it.
    pub fn requires_verification(&self, reference: &str, pulled: bool) -> bool {
        match self {
            VerificationPolicy::NeverVerify => false,
            VerificationPolicy::NeverVerifyPreloaded => pulled,
            VerificationPolicy::NeverVerifyAllowlisted(list) => {
                let name = image::without_tag(reference).unwrap_or(reference);
                !list.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(start) if start.ends_with('/') => name.starts_with(start),
                    _ => name == pattern,
                })
            }
            VerificationPolicy::AlwaysVerify => true,
        }
    }
}

/// The credentials that an image was pulled with, by image name; upstream's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePulledRecord {
    /// Time of the last change.
    pub last_updated_time: Timestamp,
    /// The runtime's reference.
    pub image_ref: String,
    /// Credentials by image name without tag and digest, as manifests have it.
    #[serde(default)]
    pub credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

/// The pods that may use an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePullCredentials {
    /// Pods with one of these Secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<ImagePullSecret>,
    /// Pods of these service accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<ServiceAccountRef>,
    /// Every pod of the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// A Secret that an image was pulled with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullSecret {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// Hash of the login in it.
    pub credential_hash: String,
}

impl ImagePullCredentials {
    /// The pods that may use an image after a pull with a credential, or without any.
    pub fn from_pull(used: Option<&Credential>) -> Self {
        match used {
            Some(Credential {
                source: CredentialSource::ServiceAccount(account),
                ..
            }) => ImagePullCredentials {
                kubernetes_service_accounts: vec![account.clone()],
                ..ImagePullCredentials::default()
            },
            used => match used.and_then(secret) {
                None => ImagePullCredentials {
                    node_pods_accessible: true,
                    ..ImagePullCredentials::default()
                },
                Some(secret) => ImagePullCredentials {
                    kubernetes_secrets: vec![secret],
                    ..ImagePullCredentials::default()
                },
            },
        }
    }
}

fn secret(credential: &Credential) -> Option<ImagePullSecret> {
    match &credential.source {
        CredentialSource::Node | CredentialSource::ServiceAccount(_) => None,
        CredentialSource::Secret(secret) => Some(ImagePullSecret {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
            uid: secret.uid.clone(),
            credential_hash: hash(&credential.login),
        }),
    }
}

/// The recorded access to an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAccess {
    /// Every pod may use it.
    AnyPod,
    /// Pods with one of these Secrets or of one of these service accounts.
    Restricted(Vec<ImagePullSecret>, Vec<ServiceAccountRef>),
    /// Not recorded: the registry decides.
    Unknown,
}

/// The recorded access to an image by the name in a manifest.
pub fn image_access(record: Option<&ImagePulledRecord>, reference: &str) -> ImageAccess {
    let name = image::without_tag(reference);
    let access = record
        .zip(name)
        .and_then(|(record, name)| record.credential_mapping.get(name));
    match access {
        Some(access) if access.node_pods_accessible => ImageAccess::AnyPod,
        Some(ImagePullCredentials {
            kubernetes_secrets: secrets,
            kubernetes_service_accounts: accounts,
            ..
        }) if !secrets.is_empty() || !accounts.is_empty() => {
            ImageAccess::Restricted(secrets.clone(), accounts.clone())
        }
        _ => ImageAccess::Unknown,
    }
}

/// The pod's Secret that grants access: one with the same content, or the same Secret with new
/// content. Also whether the record must be updated with it.
pub fn matching_secret(
    secrets: &[ImagePullSecret],
    logins: &[Credential],
) -> Option<(ImagePullSecret, bool)> {
    let has_space = secrets.len() < MAX_SECRETS;
    logins.iter().filter_map(secret).find_map(|own| {
        secrets.iter().find_map(|recorded| {
            let identity =
                |s: &ImagePullSecret| (s.namespace.clone(), s.name.clone(), s.uid.clone());
            let same_secret = identity(&own) == identity(recorded);
            let same_content = !recorded.credential_hash.is_empty()
                && own.credential_hash == recorded.credential_hash;
            match (same_content, same_secret) {
                (true, same_secret) => Some((own.clone(), !same_secret && has_space)),
                (false, true) if has_space => Some((own.clone(), true)),
                _ => None,
            }
        })
    })
}

/// Whether the pod's service account is one of those recorded. It counts only if a plugin returned a
/// login for its token.
pub fn matches_service_account(accounts: &[ServiceAccountRef], logins: &[Credential]) -> bool {
    let account = logins.iter().find_map(|login| match &login.source {
        CredentialSource::ServiceAccount(account) => Some(account),
        _ => None,
    });
    account.is_some_and(|account| accounts.contains(account))
}

/// The record after a pull or a successful verification; `None` without a change. Without `access`
/// it only records that this node has pulled the image.
pub fn updated_record(
    record: Option<&ImagePulledRecord>,
    image_ref: &str,
    reference: &str,
    access: Option<ImagePullCredentials>,
    now: Timestamp,
) -> Option<ImagePulledRecord> {
    let name = image::without_tag(reference)?.to_owned();
    let mut new = record.cloned().unwrap_or_else(|| ImagePulledRecord {
        last_updated_time: now,
        image_ref: image_ref.to_owned(),
        credential_mapping: BTreeMap::new(),
    });
    if let Some(access) = access {
        let recorded = new.credential_mapping.entry(name).or_default();
        if recorded.node_pods_accessible || access.node_pods_accessible {
            *recorded = ImagePullCredentials {
                node_pods_accessible: true,
                ..ImagePullCredentials::default()
            };
        } else {
            for secret in access.kubernetes_secrets {
                recorded.kubernetes_secrets.retain(|other| {
                    (&other.namespace, &other.name, &other.uid)
                        != (&secret.namespace, &secret.name, &secret.uid)
                });
                recorded.kubernetes_secrets.push(secret);
            }
            recorded.kubernetes_secrets.sort();
            let accounts = &mut recorded.kubernetes_service_accounts;
            accounts.extend(access.kubernetes_service_accounts);
            accounts.sort();
            accounts.dedup();
        }
    }
    if record == Some(&new) {
        return None;
    }
    new.last_updated_time = now;
    Some(new)
}

#[derive(Serialize)]
struct HashInput<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    password: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    email: &'a str,
}

/// SHA-256 of a login in upstream's encoding.
fn hash(login: &Login) -> String {
    let input = HashInput {
        username: &login.username,
        password: &login.password,
        email: &login.email,
    };
    let Ok(text) = serde_json::to_string(&input) else {
        return String::new();
    };
    // Go's encoder escapes these characters for HTML.
    let text = text
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029");
    sha256(&text)
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests;
