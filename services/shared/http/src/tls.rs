//! TLS configurations, built on first use: without verification for probes and hooks, which ask
//! whether a server responds and not who it is; with the machine's certificate authorities for
//! sources.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Certificate authorities of common distributions; Go programs look in the same places.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No bundle of certificate authorities was found.
    #[error("no certificate authorities are installed (package ca-certificates)")]
    NoBundle,
    /// The bundle cannot be read.
    #[error("reading certificate authorities from {path}")]
    Bundle {
        /// The bundle.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The bundle has no usable certificate.
    #[error("no certificate authority in {0}")]
    EmptyBundle(PathBuf),
    /// The library refuses the configuration.
    #[error("setting up TLS")]
    Setup(#[source] Error),
}

/// A lazily built client configuration.
pub(crate) enum TlsClient {
    /// Accepts every certificate. Built once.
    Unverified(OnceLock<Arc<ClientConfig>>),
    /// Trusts what the machine trusts: `SSL_CERT_FILE`, or the distribution's bundle. Read again for
    /// each request, since requests are rare and bundles are updated.
    Verified,
}

impl TlsClient {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        match self {
            TlsClient::Verified => verified().map(Arc::new),
            TlsClient::Unverified(config) => match config.get() {
                Some(config) => Ok(Arc::clone(config)),
                None => {
                    let built = Arc::new(unverified().map_err(TlsError::Setup)?);
                    Ok(Arc::clone(config.get_or_init(|| built)))
                }
            },
        }
    }
}

fn unverified() -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
        .with_no_client_auth();
    Ok(config)
}

fn verified() -> Result<ClientConfig, TlsError> {
    let configured = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let installed = BUNDLES.iter().map(PathBuf::from).find(|p| p.is_file());
    let bundle = configured.or(installed).ok_or(TlsError::NoBundle)?;
    let roots = roots(&bundle)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots(bundle: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(bundle).map_err(|source| TlsError::Bundle {
            path: bundle.to_owned(),
            source,
        })?;
    // One invalid certificate must not invalidate the bundle.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        return Err(TlsError::EmptyBundle(bundle.to_owned()));
    }
    Ok(roots)
}

#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// Those of the library, and P-521, which upstream offers, too: nothing is verified, but a server
    /// with such a certificate needs to be offered its scheme.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

/// Records the first bytes read from a stream: a server that speaks plain HTTP responds to a TLS
/// handshake with `HTTP/`.
pub(crate) struct FirstBytes<S> {
    stream: S,
    first: Vec<u8>,
}

impl<S> FirstBytes<S> {
    const COUNT: usize = 5;

    pub(crate) fn new(stream: S) -> Self {
        FirstBytes {
            stream,
            first: Vec::with_capacity(Self::COUNT),
        }
    }

    pub(crate) fn is(&self, expected: &[u8]) -> bool {
        self.first == expected
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let missing = Self::COUNT.saturating_sub(self.first.len());
        let new = buffer.filled().iter().skip(before).take(missing);
        self.first.extend(new);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_offer_the_schemes_of_upstream() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let schemes = AcceptAll(provider).supported_verify_schemes();
        for scheme in [
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
        ] {
            assert!(schemes.contains(&scheme), "{scheme:?}");
        }
    }
}
