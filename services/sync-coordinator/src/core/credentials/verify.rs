//! Whether a pod may use an image that is on the node already.
//!
//! An image that was pulled with one pod's password is not every pod's. Records say with what each
//! image was pulled; a pod that shows none of that must pull it with its own logins, which the
//! registry then judges. Names and rules are upstream's (KubeletEnsureSecretPulledImages), so that
//! a node's records outlive a change of its agent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::image;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::{AccountRef, Credential, Login, Source};

/// As many Secrets of one image are remembered beyond the one it was pulled with.
const MOST_SECRETS: usize = 100;

/// Which images are asked about: `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None.
    Never,
    /// All that this node pulled itself.
    NeverPreloaded,
    /// All but those of a list: names, or beginnings that end in `/*`.
    NeverListed(Vec<String>),
    /// All.
    Always,
}

impl Policy {
    /// The policy by its name.
    pub fn of(name: &str, list: &[String]) -> Self {
        match name {
            "NeverVerify" => Policy::Never,
            "NeverVerifyAllowlistedImages" => Policy::NeverListed(list.to_vec()),
            "AlwaysVerify" => Policy::Always,
            _ => Policy::NeverPreloaded,
        }
    }

    /// Whether a pod must show that it may use an image. `pulled` tells that this node pulled it.
    pub fn asks(&self, reference: &str, pulled: bool) -> bool {
        match self {
            Policy::Never => false,
            Policy::NeverPreloaded => pulled,
            Policy::NeverListed(list) => {
                let name = image::without_tag(reference).unwrap_or(reference);
                !list.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(start) if start.ends_with('/') => name.starts_with(start),
                    _ => name == pattern,
                })
            }
            Policy::Always => true,
        }
    }
}

/// What an image was pulled with, by the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it last changed.
    pub last_updated_time: Timestamp,
    /// The runtime's reference.
    pub image_ref: String,
    /// By name without tag and digest, as manifests say it.
    #[serde(default)]
    pub credential_mapping: BTreeMap<String, Access>,
}

/// Who may use an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Access {
    /// Pods that have one of these Secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<PulledSecret>,
    /// Pods of these service accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<AccountRef>,
    /// Every pod of the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// A Secret that an image was pulled with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Of what is in it.
    pub credential_hash: String,
}

impl Access {
    /// Who may use an image that was pulled with a login, or without any.
    pub fn of(used: Option<&Credential>) -> Self {
        match used {
            Some(Credential {
                source: Source::Account(account),
                ..
            }) => Access {
                kubernetes_service_accounts: vec![account.clone()],
                ..Access::default()
            },
            used => match used.and_then(secret) {
                None => Access {
                    node_pods_accessible: true,
                    ..Access::default()
                },
                Some(secret) => Access {
                    kubernetes_secrets: vec![secret],
                    ..Access::default()
                },
            },
        }
    }
}

fn secret(credential: &Credential) -> Option<PulledSecret> {
    match &credential.source {
        Source::Node | Source::Account(_) => None,
        Source::Secret(of) => Some(PulledSecret {
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            uid: of.uid.clone(),
            credential_hash: hash(&credential.login),
        }),
    }
}

/// What is known without looking at the pod's logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Every pod may.
    Open,
    /// Pods that have one of these Secrets, or are of one of these accounts, may.
    Shown(Vec<PulledSecret>, Vec<AccountRef>),
    /// The registry has to say.
    Nothing,
}

/// What a record says of an image by the name that a manifest uses.
pub fn known(record: Option<&Record>, reference: &str) -> Known {
    let name = image::without_tag(reference);
    let access = record
        .zip(name)
        .and_then(|(record, name)| record.credential_mapping.get(name));
    match access {
        Some(access) if access.node_pods_accessible => Known::Open,
        Some(Access {
            kubernetes_secrets: secrets,
            kubernetes_service_accounts: accounts,
            ..
        }) if !secrets.is_empty() || !accounts.is_empty() => {
            Known::Shown(secrets.clone(), accounts.clone())
        }
        _ => Known::Nothing,
    }
}

/// The pod's Secret that shows that it may: one with the same content, or the very same Secret with
/// a new one. With it, whether that is news for the record.
pub fn shown(secrets: &[PulledSecret], logins: &[Credential]) -> Option<(PulledSecret, bool)> {
    let room = secrets.len() < MOST_SECRETS;
    logins.iter().filter_map(secret).find_map(|mine| {
        secrets.iter().find_map(|theirs| {
            let place = |s: &PulledSecret| (s.namespace.clone(), s.name.clone(), s.uid.clone());
            let same_place = place(&mine) == place(theirs);
            let same_content = !theirs.credential_hash.is_empty()
                && mine.credential_hash == theirs.credential_hash;
            match (same_content, same_place) {
                (true, same_place) => Some((mine.clone(), !same_place && room)),
                (false, true) if room => Some((mine.clone(), true)),
                _ => None,
            }
        })
    })
}

/// Whether the pod is of one of the accounts: it counts only where a plugin gives a login for its
/// token.
pub fn is_of(accounts: &[AccountRef], logins: &[Credential]) -> bool {
    let account = logins.iter().find_map(|login| match &login.source {
        Source::Account(account) => Some(account),
        _ => None,
    });
    account.is_some_and(|account| accounts.contains(account))
}

/// The record after a pull, or after a Secret was shown; none where nothing changes. Without
/// `access` it only says that this node pulled the image.
pub fn noted(
    record: Option<&Record>,
    image_ref: &str,
    reference: &str,
    access: Option<Access>,
    now: Timestamp,
) -> Option<Record> {
    let name = image::without_tag(reference)?.to_owned();
    let mut new = record.cloned().unwrap_or_else(|| Record {
        last_updated_time: now,
        image_ref: image_ref.to_owned(),
        credential_mapping: BTreeMap::new(),
    });
    if let Some(access) = access {
        let known = new.credential_mapping.entry(name).or_default();
        if known.node_pods_accessible || access.node_pods_accessible {
            *known = Access {
                node_pods_accessible: true,
                ..Access::default()
            };
        } else {
            for secret in access.kubernetes_secrets {
                known.kubernetes_secrets.retain(|other| {
                    (&other.namespace, &other.name, &other.uid)
                        != (&secret.namespace, &secret.name, &secret.uid)
                });
                known.kubernetes_secrets.push(secret);
            }
            known.kubernetes_secrets.sort();
            let accounts = &mut known.kubernetes_service_accounts;
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
struct Hashed<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    password: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    email: &'a str,
}

/// SHA-256 of a login as upstream writes it down for that.
fn hash(login: &Login) -> String {
    let hashed = Hashed {
        username: &login.username,
        password: &login.password,
        email: &login.email,
    };
    let Ok(text) = serde_json::to_string(&hashed) else {
        return String::new();
    };
    // Go's encoder keeps these out of JSON that may stand in a page.
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
