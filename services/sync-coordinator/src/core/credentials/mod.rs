//! Credentials of image registries: parsed from configuration, looked up by image, never printed.
//!
//! Upstream's order: the pod's pull secrets, then the node's docker configuration, then credential
//! provider plugins; within each the most specific location first. A pull tries them in that order
//! until one works.

pub mod docker_config;
pub mod keyring;
pub mod location;
pub mod provider;
pub mod verify;

use std::fmt;

use serde::{Deserialize, Serialize};

/// User name and password. Never printed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Login {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
    /// Email address, as old registries require it; part of the hash.
    pub email: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(<hidden>)")
    }
}

/// A Secret in records of pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecretRef {
    /// Its UID; may be empty for local Secrets.
    pub uid: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A service account in records of pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceAccountRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

/// The origin of a credential, which limits who may use it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialSource {
    /// The node's configuration: every pod.
    Node,
    /// A pull secret: pods that reference it.
    Secret(SecretRef),
    /// A plugin's response to a service account's token: pods of that account.
    ServiceAccount(ServiceAccountRef),
}

/// A login with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    /// The login.
    pub login: Login,
    /// The origin.
    pub source: CredentialSource,
}
