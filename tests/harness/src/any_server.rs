//! TLS clients that accept every server: nodes sign their certificates themselves.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::error::HarnessError;

/// A configuration with this certificate and key, or without.
///
/// # Errors
/// Fails if they cannot be read or used.
pub fn tls(files: Option<&(PathBuf, PathBuf)>) -> Result<Arc<ClientConfig>, HarnessError> {
    let made = |what| move |source| HarnessError::Tls { what, source };
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(made("the protocol versions"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(EveryServer));
    let Some((certificate, key)) = files else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let unread = |path: &PathBuf, error: &dyn std::fmt::Display| HarnessError::File {
        what: "read",
        path: path.clone(),
        source: std::io::Error::other(error.to_string()),
    };
    let chain = CertificateDer::from_pem_file(certificate);
    let chain = chain.map_err(|error| unread(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
    let config = builder.with_client_auth_cert(vec![chain], private);
    Ok(Arc::new(config.map_err(made("the client certificate"))?))
}

#[derive(Debug)]
struct EveryServer;

impl ServerCertVerifier for EveryServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
