//! What a kubeconfig says of the node's identity, and the one made of a bootstrap kubeconfig.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_api::kube::config::{Kubeconfig, KubeconfigError};
use polylet_kit::kept;
use serde_json::json;

use super::store;
use crate::core::certificates::{Credentials, Place};

/// Why a kubeconfig is not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    #[error("the bootstrap kubeconfig {path}")]
    Bootstrap {
        path: PathBuf,
        #[source]
        source: KubeconfigError,
    },
    #[error("the bootstrap kubeconfig {path} names no cluster")]
    NoCluster { path: PathBuf },
    #[error("writing the kubeconfig {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// How a kubeconfig says who the node is; `kept` is the certificate that this service keeps, which
/// stands for the kubeconfig's own where it is rotated.
pub(super) fn credentials(path: &Path, kept: &Path, rotate: bool) -> Credentials {
    let Ok(kubeconfig) = Kubeconfig::read_from(path) else {
        return Credentials::None;
    };
    let Some(user) = polylet_api::kept::user(&kubeconfig) else {
        return Credentials::None;
    };
    let (pem, place) = if let Some(data) = &user.client_certificate_data {
        (STANDARD.decode(data).ok(), Place::Embedded)
    } else if let Some(file) = &user.client_certificate {
        let ours = Path::new(file) == kept;
        let place = if ours { Place::Kept } else { Place::File };
        (std::fs::read(file).ok(), place)
    } else if user.token.is_some() || user.token_file.is_some() || user.exec.is_some() {
        return Credentials::Other;
    } else {
        return Credentials::None;
    };
    let (pem, place) = if rotate && polylet_api::kept::counts(kept) {
        (std::fs::read(kept).ok(), Place::Kept)
    } else {
        (pem, place)
    };
    match pem.and_then(|pem| store::read(&pem)) {
        Some((validity, _)) => Credentials::Certificate(validity, place),
        None => Credentials::None,
    }
}

/// The certificate and the key that a kubeconfig holds itself, as they are in it.
pub(super) fn embedded(path: &Path) -> Option<(String, String)> {
    let kubeconfig = Kubeconfig::read_from(path).ok()?;
    let user = polylet_api::kept::user(&kubeconfig)?;
    let text = |data: &str| String::from_utf8(STANDARD.decode(data).ok()?).ok();
    let certificate = text(user.client_certificate_data.as_ref()?)?;
    // Keys are shown to whoever writes a kubeconfig alone.
    let written = serde_json::to_value(user).ok()?;
    Some((certificate, text(written["client-key-data"].as_str()?)?))
}

/// Makes the kubeconfig: the server of the bootstrap kubeconfig, and the certificate kept here.
pub(super) fn make(bootstrap: &Path, path: &Path, certificate: &Path) -> Result<(), MakeError> {
    let read = Kubeconfig::read_from(bootstrap).map_err(|source| MakeError::Bootstrap {
        path: bootstrap.to_owned(),
        source,
    })?;
    let context = read
        .contexts
        .iter()
        .find(|named| Some(&named.name) == read.current_context.as_ref());
    let context = context.and_then(|named| named.context.as_ref());
    let cluster = context.and_then(|context| {
        let named = read
            .clusters
            .iter()
            .find(|named| named.name == context.cluster);
        named?.cluster.as_ref()
    });
    let (Some(context), Some(cluster)) = (context, cluster) else {
        return Err(MakeError::NoCluster {
            path: bootstrap.to_owned(),
        });
    };
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default-cluster", "cluster": cluster }],
        "users": [{ "name": "default-auth", "user": {
            "client-certificate": certificate,
            "client-key": certificate,
        } }],
        "contexts": [{ "name": "default-context", "context": {
            "cluster": "default-cluster",
            "user": "default-auth",
            "namespace": context.namespace.as_deref().unwrap_or("default"),
        } }],
        "current-context": "default-context",
    });
    // JSON is YAML.
    let text = format!("{text:#}\n");
    let directory = path.parent().map_or(Ok(()), store::make);
    let written = directory.and_then(|()| kept::write(path, text.as_bytes()));
    written.map_err(|source| MakeError::Write {
        path: path.to_owned(),
        source,
    })
}
