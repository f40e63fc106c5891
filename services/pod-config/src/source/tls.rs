//! TLS for URL sources, with the machine's certificate authorities.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Where distributions keep them; the same places in which Go programs look.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why there is no TLS client.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("no certificate authorities are installed (package ca-certificates)")]
    NoBundle,
    #[error("reading certificate authorities from {path}")]
    Bundle {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("no certificate authority in {0}")]
    EmptyBundle(PathBuf),
    #[error("setting TLS up")]
    Setup(#[source] rustls::Error),
}

/// A client that trusts what the machine trusts. `SSL_CERT_FILE` goes before all else.
pub(super) fn client() -> Result<Arc<ClientConfig>, TlsError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = BUNDLES.iter().map(PathBuf::from).find(|p| p.is_file());
    let bundle = named.or(known).ok_or(TlsError::NoBundle)?;
    let roots = roots(&bundle)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn roots(bundle: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(bundle).map_err(|source| TlsError::Bundle {
            path: bundle.to_owned(),
            source,
        })?;
    // One bad certificate in a bundle is no reason to trust none.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        return Err(TlsError::EmptyBundle(bundle.to_owned()));
    }
    Ok(roots)
}
