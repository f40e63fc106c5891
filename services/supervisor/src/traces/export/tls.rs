//! TLS towards the collector.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::settings::{ExportEndpoint, ExportSettings};

/// Why TLS is not set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectorTlsError {
    #[error("reading {path}")]
    Certificates {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("no certificate in {path}")]
    NoCertificate { path: PathBuf },
    #[error("the certificate of an authority in {path}")]
    Authority {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the certificate {path} and its key")]
    Client {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the system's certificate authorities")]
    SystemAuthorities(#[source] std::io::Error),
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
}

/// TLS of clients: the authorities of the settings, or the system's.
pub(super) fn client_config(settings: &ExportSettings) -> Result<ClientConfig, CollectorTlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CollectorTlsError::Tls)?;
    let is_plain =
        matches!(&settings.endpoint, ExportEndpoint::Url(url) if url.scheme_str() == Some("http"));
    let config = match &settings.authorities {
        Some(path) => config.with_root_certificates(authorities(path)?),
        // A machine without authorities can still export in plain text.
        None if is_plain => config.with_root_certificates(RootCertStore::empty()),
        None => config
            .with_native_roots()
            .map_err(CollectorTlsError::SystemAuthorities)?,
    };
    let Some((path, key)) = &settings.client else {
        return Ok(config.with_no_client_auth());
    };
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|source| CollectorTlsError::Certificates {
            path: key.clone(),
            source,
        })?;
    let config = config.with_client_auth_cert(certificates(path)?, private);
    config.map_err(|source| CollectorTlsError::Client {
        path: path.clone(),
        source,
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, CollectorTlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = authorities.add(certificate);
        added.map_err(|source| CollectorTlsError::Authority {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(authorities)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CollectorTlsError> {
    let unread = |source| CollectorTlsError::Certificates {
        path: path.to_owned(),
        source,
    };
    let read = CertificateDer::pem_file_iter(path).map_err(unread)?;
    let read = read.collect::<Result<Vec<_>, _>>().map_err(unread)?;
    if read.is_empty() {
        return Err(CollectorTlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(read)
}
