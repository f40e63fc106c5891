//! Credentials for a pod's image: from its pull secrets, the node's docker configuration and
//! credential provider plugins.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use polylet_model::Manifest;

use super::super::{RuntimeManager, events, objects};
use crate::core::credentials::docker_config;
use crate::core::credentials::docker_config::{DockerConfigError, Logins};
use crate::core::credentials::keyring::Keyring;
use crate::core::credentials::{Credential, CredentialSource, SecretRef};

/// The maximum size of a docker configuration; a larger one is ignored.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A pull secret with invalid content.
#[derive(Debug, thiserror::Error)]
#[error("image pull secret \"{namespace}/{name}\": {key}")]
pub struct SecretError {
    namespace: String,
    name: String,
    key: &'static str,
    #[source]
    source: DockerConfigError,
}

/// Credentials to try for an image, in order. `image` is its full name without tag or digest.
pub async fn lookup(
    manager: &RuntimeManager,
    manifest: &Manifest,
    image: &str,
) -> Result<Vec<Credential>, SecretError> {
    let mut found = pull_secret_logins(manager, manifest, image).await?;
    let node = node_config(&manager.ctx.config().polylet.root_directory).await;
    let mut ring = Keyring::default();
    ring.add(&CredentialSource::Node, node);
    found.extend(matching(&ring, manifest, image));
    found.extend(
        manager
            .images
            .plugins
            .lookup(manager, manifest, image)
            .await,
    );
    Ok(found)
}

/// Records an event about missing pull secrets, in the background: the image is present.
pub fn check_pull_secrets(manager: &Rc<RuntimeManager>, manifest: &Manifest) {
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
    let (task_manager, manifest) = (Rc::clone(manager), manifest.clone());
    manager.ctx.background("pull secrets", async move {
        let _ = from_secrets(&task_manager, &manifest).await;
    });
}

/// Credentials from the pod's pull secrets.
pub async fn pull_secret_logins(
    manager: &RuntimeManager,
    manifest: &Manifest,
    image: &str,
) -> Result<Vec<Credential>, SecretError> {
    let ring = from_secrets(manager, manifest).await?;
    Ok(matching(&ring, manifest, image))
}

/// The credentials of a keyring for a pod's image.
pub fn matching(ring: &Keyring, manifest: &Manifest, image: &str) -> Vec<Credential> {
    let matches = ring.lookup(image);
    if matches.is_incomplete {
        tracing::warn!(
            pod = format!("{}/{}", manifest.namespace(), manifest.name()),
            pod_uid = %manifest.uid(),
            image,
            "image credentials have too expensive patterns; ignoring the remaining ones"
        );
    }
    matches.credentials
}

/// The keyring of the pod's pull secrets. Missing ones are ignored: the image may need none.
async fn from_secrets(
    manager: &RuntimeManager,
    manifest: &Manifest,
) -> Result<Keyring, SecretError> {
    let named = manifest.spec().image_pull_secrets.iter().flatten();
    let names: Vec<&str> = named
        .map(|reference| reference.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let namespace = manifest.namespace();
    let all = join_all(names.iter().map(|name| secret(manager, manifest, name))).await;
    let (mut ring, mut missing) = (Keyring::default(), Vec::new());
    for (name, secret) in names.into_iter().zip(all) {
        let Some(secret) = secret else {
            missing.push(name);
            continue;
        };
        let source = CredentialSource::Secret(SecretRef {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        ring.add(&source, logins(&secret, namespace, name)?);
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        let (notices, pod) = (manager.ctx.notices(), events::pod_ref(manifest));
        notices.warning(&pod, "", "FailedToRetrieveImagePullSecret", message);
        tracing::warn!(
            pod = format!("{namespace}/{}", manifest.name()),
            secrets = missing.join(", "),
            "Unable to retrieve pull secret, the image pull may not succeed."
        );
    }
    Ok(ring)
}

/// The logins in a Secret; none for a Secret of another type.
pub(crate) fn logins(secret: &Secret, namespace: &str, name: &str) -> Result<Logins, SecretError> {
    type ParseFn = fn(&[u8]) -> Result<Logins, DockerConfigError>;
    let (key, parse): (&'static str, ParseFn) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            (".dockerconfigjson", docker_config::parse_config_json)
        }
        Some("kubernetes.io/dockercfg") => (".dockercfg", docker_config::parse_dockercfg),
        _ => return Ok(Logins::new()),
    };
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    match data.filter(|bytes| !bytes.0.is_empty()) {
        None => Ok(Logins::new()),
        Some(bytes) => parse(&bytes.0).map_err(|source| SecretError {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key,
            source,
        }),
    }
}

async fn secret(manager: &RuntimeManager, manifest: &Manifest, name: &str) -> Option<Secret> {
    let namespace = manifest.namespace();
    match objects::get(manager, manifest, "Secret", namespace, name).await {
        // An invalid object counts as missing; the parser's message could quote the secret.
        Ok(json) => serde_json::from_slice(&json?).ok(),
        Err(status) => {
            tracing::warn!(
                secret = format!("{namespace}/{name}"),
                error = status.message(),
                "failed to get image pull secret; ignoring it"
            );
            None
        }
    }
}

/// The first valid docker configuration, in the kubelet's search order. Read for each pull, so that a
/// change takes effect at once.
async fn node_config(root: &Path) -> Logins {
    type ParseFn = fn(&[u8]) -> Result<Logins, DockerConfigError>;
    let home = std::env::var_os("HOME").map_or_else(PathBuf::new, PathBuf::from);
    let newer = [
        root.to_owned(),
        PathBuf::new(),
        home.join(".docker"),
        "/.docker".into(),
    ];
    let older = [root.to_owned(), PathBuf::new(), home, "/".into()];
    let newer = newer.map(|dir| {
        (
            dir.join("config.json"),
            docker_config::parse_config_json as ParseFn,
        )
    });
    let older = older.map(|dir| {
        (
            dir.join(".dockercfg"),
            docker_config::parse_dockercfg as ParseFn,
        )
    });
    for (path, parse) in newer.into_iter().chain(older) {
        let size = tokio::fs::metadata(&path)
            .await
            .map(|meta| (meta.is_file(), meta.len()));
        if !matches!(size, Ok((true, bytes)) if bytes <= MAX_CONFIG_BYTES) {
            continue;
        }
        let bytes = tokio::fs::read(&path).await;
        match bytes.map(|bytes| parse(&bytes)) {
            Ok(Ok(logins)) => return logins,
            Ok(Err(error)) => {
                tracing::debug!(path = %path.display(), %error, "invalid docker configuration; ignoring it");
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "failed to read docker configuration; ignoring it")
            }
        }
    }
    Logins::new()
}
