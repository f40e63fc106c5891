//! Logins for a pod's image: its pull secrets, the node's docker configuration, plugins.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use polylet_model::Manifest;

use super::super::{Hands, notices, object};
use crate::core::credentials::docker_config::{self, DockerConfigError, Logins};
use crate::core::credentials::keyring::Keyring;
use crate::core::credentials::{Credential, SecretRef, Source};

/// A docker configuration beyond this size is none.
const MOST_BYTES: u64 = 1 << 20;

/// A pull secret that is there and cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("image pull secret \"{namespace}/{name}\": {key}")]
pub struct SecretError {
    namespace: String,
    name: String,
    key: &'static str,
    #[source]
    source: DockerConfigError,
}

/// What to try for an image, in order. `image` is its full name without tag or digest.
pub async fn lookup(
    hands: &Hands,
    manifest: &Manifest,
    image: &str,
) -> Result<Vec<Credential>, SecretError> {
    let mut found = from_secrets(hands, manifest).await?.lookup(image);
    let node = node_config(&hands.ctx.config().polylet.root_directory).await;
    let mut ring = Keyring::default();
    ring.add(&Source::Node, node);
    found.extend(ring.lookup(image));
    found.extend(hands.images.providers.lookup(hands, manifest, image).await);
    Ok(found)
}

/// Has people told of Secrets that are not there although no pull asks for them; no start waits for that.
pub fn mind(hands: &Rc<Hands>, manifest: &Manifest) {
    if manifest
        .spec()
        .image_pull_secrets
        .iter()
        .flatten()
        .next()
        .is_none()
    {
        return;
    }
    let (hands_too, manifest) = (Rc::clone(hands), manifest.clone());
    hands.ctx.background("pull secrets", async move {
        let _ = from_secrets(&hands_too, &manifest).await;
    });
}

/// The logins of the pod's own Secrets.
pub async fn of_pod(
    hands: &Hands,
    manifest: &Manifest,
    image: &str,
) -> Result<Vec<Credential>, SecretError> {
    Ok(from_secrets(hands, manifest).await?.lookup(image))
}

/// Secrets that are not there are left out: the image may need none.
async fn from_secrets(hands: &Hands, manifest: &Manifest) -> Result<Keyring, SecretError> {
    let named = manifest.spec().image_pull_secrets.iter().flatten();
    let names: Vec<&str> = named
        .map(|reference| reference.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let namespace = manifest.namespace();
    let all = join_all(names.iter().map(|name| secret(hands, manifest, name))).await;
    let (mut ring, mut missing) = (Keyring::default(), Vec::new());
    for (name, secret) in names.into_iter().zip(all) {
        let Some(secret) = secret else {
            missing.push(name);
            continue;
        };
        let source = Source::Secret(SecretRef {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        ring.add(&source, logins(&secret, namespace, name)?);
    }
    if !missing.is_empty() {
        let words = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        let (notices, pod) = (hands.ctx.notices(), notices::pod_of(manifest));
        notices.warning(&pod, "", "FailedToRetrieveImagePullSecret", words);
        tracing::warn!(
            k8s.pod.name = manifest.name(),
            k8s.namespace.name = namespace,
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
    }
    Ok(ring)
}

/// A Secret's logins; none of a Secret of another type.
fn logins(secret: &Secret, namespace: &str, name: &str) -> Result<Logins, SecretError> {
    type Read = fn(&[u8]) -> Result<Logins, DockerConfigError>;
    let (key, read): (&'static str, Read) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => (".dockerconfigjson", docker_config::config_json),
        Some("kubernetes.io/dockercfg") => (".dockercfg", docker_config::dockercfg),
        _ => return Ok(Logins::new()),
    };
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    match data.filter(|bytes| !bytes.0.is_empty()) {
        None => Ok(Logins::new()),
        Some(bytes) => read(&bytes.0).map_err(|source| SecretError {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key,
            source,
        }),
    }
}

async fn secret(hands: &Hands, manifest: &Manifest, name: &str) -> Option<Secret> {
    let namespace = manifest.namespace();
    match object::get(hands, manifest, "Secret", namespace, name).await {
        // What cannot be read is not there; the parser's words might quote it.
        Ok(json) => serde_json::from_slice(&json?).ok(),
        Err(status) => {
            let why = status.message();
            tracing::warn!(
                name,
                namespace,
                why,
                "an image pull secret cannot be asked for"
            );
            None
        }
    }
}

/// The first docker configuration that can be read, at upstream's places. Read for each pull: it
/// is small, and a change counts at once.
async fn node_config(root: &Path) -> Logins {
    type Read = fn(&[u8]) -> Result<Logins, DockerConfigError>;
    let home = std::env::var_os("HOME").map_or_else(PathBuf::new, PathBuf::from);
    let newer = [
        root.to_owned(),
        PathBuf::new(),
        home.join(".docker"),
        "/.docker".into(),
    ];
    let older = [root.to_owned(), PathBuf::new(), home, "/".into()];
    let newer = newer.map(|dir| (dir.join("config.json"), docker_config::config_json as Read));
    let older = older.map(|dir| (dir.join(".dockercfg"), docker_config::dockercfg as Read));
    for (path, read) in newer.into_iter().chain(older) {
        let size = tokio::fs::metadata(&path)
            .await
            .map(|meta| (meta.is_file(), meta.len()));
        if !matches!(size, Ok((true, bytes)) if bytes <= MOST_BYTES) {
            continue;
        }
        let bytes = tokio::fs::read(&path).await;
        match bytes.map(|bytes| read(&bytes)) {
            Ok(Ok(logins)) => return logins,
            Ok(Err(error)) => {
                tracing::debug!(path = %path.display(), %error, "no docker configuration");
            }
            Err(error) => tracing::debug!(path = %path.display(), %error, "cannot be read"),
        }
    }
    Logins::new()
}
