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

/// A client that trusts what the machine trusts. `SSL_CERT_FILE` goes before all else.
pub(super) fn client() -> Result<Arc<ClientConfig>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = BUNDLES.iter().map(PathBuf::from).find(|p| p.is_file());
    let bundle = named
        .or(known)
        .ok_or("no certificate authorities are installed (package ca-certificates)")?;
    let roots = roots(&bundle)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn roots(bundle: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(bundle).map_err(|error| {
        format!(
            "certificate authorities cannot be read from {}: {error}",
            bundle.display()
        )
    })?;
    // One bad certificate in a bundle is no reason to trust none.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        return Err(format!("no certificate authority in {}", bundle.display()));
    }
    Ok(roots)
}
