//! Passwords of image registries: read from what users write, found for an image, never shown.
//!
//! Upstream's rules: the pod's pull secrets come first, then the node's own docker configuration,
//! then what credential provider plugins say; within each the most specific place comes first.
//! Whoever pulls tries them in that order until one works.

pub mod docker_config;
pub mod keyring;
pub mod location;
pub mod provider;
pub mod verify;

use std::fmt;

use serde::{Deserialize, Serialize};

/// A user and a password. Never printed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Login {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// An address that old registries want; part of the login's hash.
    pub email: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(<hidden>)")
    }
}

/// A Secret, as records of pulls name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecretRef {
    /// Its uid; local Secrets have none unless they say so.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A service account, as records of pulls name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Who may use a login.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Every pod of the node.
    Node,
    /// Pods that name the Secret.
    Secret(SecretRef),
    /// Pods of the service account, whose token a plugin was given.
    Account(AccountRef),
}

/// A login and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    /// What the registry is given.
    pub login: Login,
    /// Where it comes from.
    pub source: Source,
}
