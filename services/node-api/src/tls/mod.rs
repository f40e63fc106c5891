//! TLS of the node API: the serving certificate, and who a client's certificate says it is.

mod certificate;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::Settings;
use crate::core::access::Caller;

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

/// The acceptor: our certificate, and client certificates checked against the client CA if there is
/// one. A client without a certificate may connect: what it may do is decided later.
pub(crate) fn server(
    settings: &Settings,
    state_dir: &Path,
    node: &str,
) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Serve)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(path)?.into(), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|source| TlsError::ClientCa {
                        path: path.clone(),
                        source: source.into(),
                    })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = match &settings.certificate {
        Some((certificate, key)) => (read_chain(certificate)?, read_key(key)?),
        None => {
            let path = certificate::kept_or_made(state_dir, node, settings.node_ip)?;
            (read_chain(&path)?, read_key(&path)?)
        }
    };
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
    Some(Caller::Known { name, groups })
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
            Some(Caller::Known {
                name: "kube-apiserver".to_owned(),
                groups: vec!["system:masters".to_owned()],
            })
        );
        assert_eq!(identity(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
