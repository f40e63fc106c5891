//! Credentials in the kubeconfig, and the creation of one from the bootstrap kubeconfig.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_api::kube::config::KubeconfigError;
use polylet_api::kubeconfig;
use polylet_kit::state_file;
use serde_json::json;

use super::store;
use crate::core::certificates::{CertificateLocation, Credentials};

/// Why the kubeconfig was not created.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeconfigWriteError {
    #[error("reading the bootstrap kubeconfig {path}")]
    Bootstrap {
        path: PathBuf,
        #[source]
        source: KubeconfigError,
    },
    #[error("the bootstrap kubeconfig {path} has no cluster")]
    NoCluster { path: PathBuf },
    #[error("writing the kubeconfig {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The node's credentials in a kubeconfig. The certificate in the file `managed` replaces that of the
/// kubeconfig where certificates are rotated.
pub(super) fn credentials(path: &Path, managed: &Path, rotate: bool) -> Credentials {
    let Ok(kubeconfig) = kubeconfig::read(path) else {
        return Credentials::None;
    };
    let Some(user) = polylet_api::kubeconfig::current_user(&kubeconfig) else {
        return Credentials::None;
    };
    let (pem, location) = if let Some(data) = &user.client_certificate_data {
        (STANDARD.decode(data).ok(), CertificateLocation::Embedded)
    } else if let Some(file) = &user.client_certificate {
        let is_managed = Path::new(file) == managed;
        let location = if is_managed {
            CertificateLocation::Managed
        } else {
            CertificateLocation::File
        };
        (std::fs::read(file).ok(), location)
    } else if user.token.is_some() || user.token_file.is_some() || user.exec.is_some() {
        return Credentials::Other;
    } else {
        return Credentials::None;
    };
    let (pem, location) = if rotate && polylet_api::client_cert::is_valid(managed) {
        (std::fs::read(managed).ok(), CertificateLocation::Managed)
    } else {
        (pem, location)
    };
    match pem.and_then(|pem| store::read(&pem)) {
        Some((validity, _)) => Credentials::Certificate(validity, location),
        None => Credentials::None,
    }
}

/// The certificate and the key embedded in a kubeconfig, as PEM.
pub(super) fn embedded(path: &Path) -> Option<(String, String)> {
    let kubeconfig = kubeconfig::read(path).ok()?;
    let user = polylet_api::kubeconfig::current_user(&kubeconfig)?;
    let text = |data: &str| String::from_utf8(STANDARD.decode(data).ok()?).ok();
    let certificate = text(user.client_certificate_data.as_ref()?)?;
    // The key is a secret type, readable only through serialization.
    let written = serde_json::to_value(user).ok()?;
    Some((
        certificate,
        text(written.get("client-key-data")?.as_str()?)?,
    ))
}

/// Creates the kubeconfig with the server of the bootstrap kubeconfig and the managed certificate.
pub(super) fn create(
    bootstrap: &Path,
    path: &Path,
    certificate: &Path,
) -> Result<(), KubeconfigWriteError> {
    let read = kubeconfig::read(bootstrap).map_err(|source| KubeconfigWriteError::Bootstrap {
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
        return Err(KubeconfigWriteError::NoCluster {
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
    let directory = path.parent().map_or(Ok(()), store::create_directory);
    let written = directory.and_then(|()| state_file::write(path, text.as_bytes()));
    written.map_err(|source| KubeconfigWriteError::Write {
        path: path.to_owned(),
        source,
    })
}
