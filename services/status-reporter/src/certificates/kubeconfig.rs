//! What a kubeconfig says of the node's identity, and the one made of a bootstrap kubeconfig.

use std::path::{Path, PathBuf};

use base64::Engine;
use polylet_api::kube::config::{Kubeconfig, KubeconfigError};
use polylet_kit::kept;
use serde_json::json;

use super::store;
use crate::core::certificates::Credentials;

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

/// How a kubeconfig says who the node is; `kept` is the certificate that this service keeps.
pub(super) fn credentials(path: &Path, kept: &Path) -> Credentials {
    let Ok(kubeconfig) = Kubeconfig::read_from(path) else {
        return Credentials::None;
    };
    let context = kubeconfig.current_context.as_deref();
    let context = kubeconfig
        .contexts
        .iter()
        .find(|named| Some(named.name.as_str()) == context);
    let user = context.and_then(|named| named.context.as_ref()?.user.as_deref());
    let users = &mut kubeconfig.auth_infos.iter();
    let user = users.find(|named| Some(named.name.as_str()) == user);
    let Some(user) = user.and_then(|named| named.auth_info.as_ref()) else {
        return Credentials::None;
    };
    let (pem, ours) = if let Some(data) = &user.client_certificate_data {
        (
            base64::engine::general_purpose::STANDARD.decode(data).ok(),
            false,
        )
    } else if let Some(file) = &user.client_certificate {
        (std::fs::read(file).ok(), Path::new(file) == kept)
    } else if user.token.is_some() || user.token_file.is_some() || user.exec.is_some() {
        return Credentials::Other;
    } else {
        return Credentials::None;
    };
    match pem.and_then(|pem| store::read(&pem)) {
        Some((validity, _)) => Credentials::Certificate(validity, ours),
        None => Credentials::None,
    }
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
