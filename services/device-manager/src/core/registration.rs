//! Which registrations of plugins are accepted.

use std::path::{Component, Path, PathBuf};

use polylet_model::extended_resource;
use thiserror::Error;

/// The version of the device plugin API.
pub const API_VERSION: &str = "v1beta1";
/// The most resources; each has a task and a connection.
const MAX_RESOURCES: usize = 512;

/// The most plugins that have registered and not told their options yet.
pub const MAX_CONNECTING: usize = 64;

/// Why a registration is refused, in upstream's words where it refuses it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    /// The plugin speaks another version.
    #[error(
        "requested API version {0:?} is not supported by kubelet. Supported version is [\"v1beta1\"]"
    )]
    Version(String),
    /// The name is not that of an extended resource.
    #[error("the ResourceName {0:?} is invalid")]
    ResourceName(String),
    /// The socket is not in the directory.
    #[error("the endpoint {0:?} is invalid; expected the name of a socket beside kubelet.sock")]
    Endpoint(String),
    /// There are too many resources already.
    #[error("resource {0:?} is not registered: there are {MAX_RESOURCES} resources already")]
    TooMany(String),
    /// Too many plugins do not answer.
    #[error("resource {0:?} is not registered: {MAX_CONNECTING} plugins have not answered yet")]
    Busy(String),
}

/// Checks a registration; returns the path of the plugin's socket. `is_known` tells whether the
/// resource is one of the `known` ones.
///
/// # Errors
/// It is refused.
pub fn check(
    directory: &Path,
    version: &str,
    resource: &str,
    endpoint: &str,
    known: usize,
    is_known: bool,
) -> Result<PathBuf, RegistrationError> {
    if version != API_VERSION {
        return Err(RegistrationError::Version(version.to_owned()));
    }
    if !extended_resource::is_extended(resource) {
        return Err(RegistrationError::ResourceName(resource.to_owned()));
    }
    // Upstream joins whatever the plugin says with the directory, which a leading slash does not leave.
    let relative = Path::new(endpoint.trim_start_matches('/'));
    let mut components = relative.components().peekable();
    let stays = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if components.peek().is_none() || !components.all(stays) {
        return Err(RegistrationError::Endpoint(endpoint.to_owned()));
    }
    if !is_known && known >= MAX_RESOURCES {
        return Err(RegistrationError::TooMany(resource.to_owned()));
    }
    Ok(directory.join(relative))
}
