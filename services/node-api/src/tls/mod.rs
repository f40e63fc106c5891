//! TLS of the node API: the serving certificate, and who a client's certificate says it is.

mod certificate;

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{Certificate, Settings};
use crate::core::access::{Caller, User};

/// What keeps the node API from serving.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {what} {path}")]
    Read {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{what} {path} holds no usable PEM block")]
    Empty { what: &'static str, path: PathBuf },
    #[error("clientCAFile {path} cannot be used")]
    ClientCa {
        path: PathBuf,
        #[source]
        source: polylet_kit::BoxError,
    },
    #[error("certificate and key do not serve")]
    Serve(#[source] rustls::Error),
    #[error("cannot make a serving certificate")]
    Make(#[source] rcgen::Error),
    #[error("cannot keep the serving certificate in {path}")]
    Keep {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// How connections are accepted; follows the files that it is made of, so that a renewed certificate
/// or client CA counts for the next connection.
pub(crate) struct Tls {
    settings: Settings,
    /// Certificate and key.
    files: (PathBuf, PathBuf),
    made_of: Vec<Stamp>,
    acceptor: Option<TlsAcceptor>,
}

/// What tells one state of a file from another.
type Stamp = Option<(u64, i64, i64)>;

impl Tls {
    /// Reads what is there. A certificate that the cluster has not signed yet may be missing.
    pub(crate) fn new(settings: Settings, state_dir: &Path, node: &str) -> Result<Self, TlsError> {
        let files = match &settings.certificate {
            Certificate::Given(certificate, key) => (certificate.clone(), key.clone()),
            Certificate::Signed(path) => (path.clone(), path.clone()),
            Certificate::OwnMade => {
                let path = certificate::kept_or_made(state_dir, node, settings.node_ip)?;
                (path.clone(), path)
            }
        };
        let mut tls = Self {
            settings,
            files,
            made_of: Vec::new(),
            acceptor: None,
        };
        tls.made_of = tls.stamps();
        match tls.make() {
            Ok(acceptor) => tls.acceptor = Some(acceptor),
            Err(TlsError::Read { path, .. })
                if matches!(tls.settings.certificate, Certificate::Signed(_))
                    && path == tls.files.0 =>
            {
                tracing::info!("the node API serves once its certificate is signed");
            }
            Err(error) => return Err(error),
        }
        Ok(tls)
    }

    /// For the next connection; `None` while there is no certificate.
    pub(crate) fn acceptor(&mut self) -> Option<TlsAcceptor> {
        let stamps = self.stamps();
        if stamps != self.made_of {
            self.made_of = stamps;
            match self.make() {
                Ok(acceptor) => {
                    tracing::info!("the node API's certificates were read anew");
                    self.acceptor = Some(acceptor);
                }
                // Half a change, most likely: the other half changes the files again.
                Err(error) => {
                    let why = polylet_kit::report(&error);
                    tracing::warn!("the node API's certificates stay as they were: {why}");
                }
            }
        }
        self.acceptor.clone()
    }

    fn stamps(&self) -> Vec<Stamp> {
        let files = [
            Some(&self.files.0),
            Some(&self.files.1),
            self.settings.client_ca.as_ref(),
        ];
        let stamp = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        files.into_iter().flatten().map(stamp).collect()
    }

    fn make(&self) -> Result<TlsAcceptor, TlsError> {
        server(&self.files, self.settings.client_ca.as_deref())
    }
}

/// The acceptor: our certificate, and client certificates checked against the client CA if there is
/// one. A client without a certificate may connect: what it may do is decided later.
fn server(
    (certificate, key): &(PathBuf, PathBuf),
    client_ca: Option<&Path>,
) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Serve)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(path)?.into(), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|source| TlsError::ClientCa {
                        path: path.to_owned(),
                        source: source.into(),
                    })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = (read_chain(certificate)?, read_key(key)?);
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(TlsError::Serve)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The common name and organisations of the client's verified certificate.
pub(crate) fn caller(connection: &ServerConnection) -> Caller {
    let first = connection
        .peer_certificates()
        .and_then(|chain| chain.first());
    first.and_then(identity).unwrap_or(Caller::Anonymous)
}

fn identity(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|organisation| organisation.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(Caller::Known(User {
        name,
        groups,
        ..User::default()
    }))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in read_chain(path)? {
        store
            .add(certificate)
            .map_err(|source| TlsError::ClientCa {
                path: path.to_owned(),
                source: source.into(),
            })?;
    }
    Ok(store)
}

fn open(what: &'static str, path: &Path) -> Result<BufReader<File>, TlsError> {
    let file = File::open(path).map_err(|source| TlsError::Read {
        what,
        path: path.to_owned(),
        source,
    })?;
    Ok(BufReader::new(file))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(open(what, path)?).collect();
    let empty = || TlsError::Empty {
        what,
        path: path.to_owned(),
    };
    let chain = chain.map_err(|_| empty())?;
    if chain.is_empty() {
        return Err(empty());
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "key";
    PrivateKeyDer::from_pem_reader(open(what, path)?).map_err(|_| TlsError::Empty {
        what,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_who_it_is() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "kube-apiserver");
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:masters");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        assert_eq!(
            identity(certificate.der()),
            Some(Caller::Known(User {
                name: "kube-apiserver".to_owned(),
                groups: vec!["system:masters".to_owned()],
                ..User::default()
            }))
        );
        assert_eq!(identity(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
