//! TLS of the node API: the serving certificate, and the identity in client certificates.

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

use crate::config::{Config, ServingCertificate};
use crate::core::access::{RequestUser, UserInfo};
use crate::tls_settings::TlsSettings;

/// Why the node API cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServingTlsError {
    #[error("reading {file} {path}")]
    Read {
        file: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{file} {path} has no usable PEM block")]
    Empty { file: &'static str, path: PathBuf },
    #[error("invalid clientCAFile {path}")]
    ClientCa {
        path: PathBuf,
        #[source]
        source: polylet_kit::BoxError,
    },
    #[error("invalid certificate/key pair")]
    KeyPair(#[source] rustls::Error),
    #[error("generating a serving certificate")]
    Generate(#[source] rcgen::Error),
    #[error("storing the serving certificate in {path}")]
    Store {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("error reading {path}, certificate and key must be supplied as a pair")]
    Unpaired { path: PathBuf },
    #[error("tlsMinVersion, tlsCipherSuites and tlsCurvePreferences leave nothing to offer")]
    Settings(#[source] rustls::Error),
}

/// Accepts TLS connections, and reloads changed files, so that a renewed certificate or client CA is used
/// from the next connection on.
pub(crate) struct ReloadingTls {
    config: Config,
    /// Certificate and key.
    files: (PathBuf, PathBuf),
    loaded: Vec<FileStamp>,
    acceptor: Option<TlsAcceptor>,
}

/// Identifies the version of a file: inode and modification time.
type FileStamp = Option<(u64, i64, i64)>;

impl ReloadingTls {
    /// Loads the files. A certificate that the cluster has not signed yet may be missing.
    pub(crate) fn new(config: Config, node: &str) -> Result<Self, ServingTlsError> {
        let files = match &config.certificate {
            ServingCertificate::Configured(certificate, key) => (certificate.clone(), key.clone()),
            ServingCertificate::Bootstrapped(path) => (path.clone(), path.clone()),
            ServingCertificate::SelfSigned(directory) => {
                certificate::load_or_generate(directory, node, config.node_ip)?
            }
        };
        let mut tls = Self {
            config,
            files,
            loaded: Vec::new(),
            acceptor: None,
        };
        tls.loaded = tls.stamps();
        match tls.load() {
            Ok(acceptor) => tls.acceptor = Some(acceptor),
            Err(ServingTlsError::Read { path, .. })
                if matches!(tls.config.certificate, ServingCertificate::Bootstrapped(_))
                    && path == tls.files.0 =>
            {
                tracing::info!("waiting for the serving certificate to be signed");
            }
            Err(error) => return Err(error),
        }
        Ok(tls)
    }

    /// The acceptor of the next connection; `None` while there is no certificate.
    pub(crate) fn acceptor(&mut self) -> Option<TlsAcceptor> {
        let stamps = self.stamps();
        if stamps != self.loaded {
            self.loaded = stamps;
            match self.load() {
                Ok(acceptor) => {
                    tracing::info!("serving certificate and client CA reloaded");
                    self.acceptor = Some(acceptor);
                }
                // Most likely half a change: the other half changes the files again.
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(
                        error,
                        "failed to reload certificates; keeping the current ones"
                    );
                }
            }
        }
        self.acceptor.clone()
    }

    fn stamps(&self) -> Vec<FileStamp> {
        let files = [
            Some(&self.files.0),
            Some(&self.files.1),
            self.config.client_ca.as_ref(),
        ];
        let stamp = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        files.into_iter().flatten().map(stamp).collect()
    }

    fn load(&self) -> Result<TlsAcceptor, ServingTlsError> {
        let Config { client_ca, tls, .. } = &self.config;
        acceptor(&self.files, client_ca.as_deref(), tls)
    }
}

/// The acceptor with the serving certificate. Client certificates are verified against the client CA if
/// there is one; a client without a certificate may connect and is authenticated later.
fn acceptor(
    (certificate, key): &(PathBuf, PathBuf),
    client_ca: Option<&Path>,
    settings: &TlsSettings,
) -> Result<TlsAcceptor, ServingTlsError> {
    let provider = Arc::new(settings.provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(settings.versions())
        .map_err(ServingTlsError::Settings)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(path)?.into(), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|source| ServingTlsError::ClientCa {
                        path: path.to_owned(),
                        source: source.into(),
                    })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = (read_chain(certificate)?, read_key(key)?);
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(ServingTlsError::KeyPair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The common name and organisations of the client's verified certificate.
pub(crate) fn caller(connection: &ServerConnection) -> RequestUser {
    let first = connection
        .peer_certificates()
        .and_then(|chain| chain.first());
    first.and_then(identity).unwrap_or(RequestUser::Anonymous)
}

fn identity(certificate: &CertificateDer<'_>) -> Option<RequestUser> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|organisation| organisation.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(RequestUser::Authenticated(UserInfo {
        name,
        groups,
        ..UserInfo::default()
    }))
}

fn roots(path: &Path) -> Result<RootCertStore, ServingTlsError> {
    let mut store = RootCertStore::empty();
    for certificate in read_chain(path)? {
        store
            .add(certificate)
            .map_err(|source| ServingTlsError::ClientCa {
                path: path.to_owned(),
                source: source.into(),
            })?;
    }
    Ok(store)
}

fn open(file: &'static str, path: &Path) -> Result<BufReader<File>, ServingTlsError> {
    let file = File::open(path).map_err(|source| ServingTlsError::Read {
        file,
        path: path.to_owned(),
        source,
    })?;
    Ok(BufReader::new(file))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServingTlsError> {
    let file = "certificate";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(open(file, path)?).collect();
    let empty = || ServingTlsError::Empty {
        file,
        path: path.to_owned(),
    };
    let chain = chain.map_err(|_| empty())?;
    if chain.is_empty() {
        return Err(empty());
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, ServingTlsError> {
    let file = "key";
    PrivateKeyDer::from_pem_reader(open(file, path)?).map_err(|_| ServingTlsError::Empty {
        file,
        path: path.to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod test_support {
    use super::*;
    use crate::config::AccessPolicy;
    use crate::config::Switches;
    use crate::core::access::AuthorizationMode;

    /// A server with a certificate of its own in this directory, and the certificate.
    pub(crate) fn self_signed(directory: &Path, tls: TlsSettings) -> (ReloadingTls, PathBuf) {
        let config = Config {
            https: None,
            healthz: None,
            read_only: None,
            certificate: ServingCertificate::SelfSigned(directory.to_owned()),
            client_ca: None,
            tls,
            access: AccessPolicy {
                anonymous: true,
                mode: AuthorizationMode::AlwaysAllow,
                token_reviews: false,
            },
            switches: Switches {
                debugging: true,
                system_logs: true,
                debug_flags: true,
                profiling: true,
                checkpoints: true,
            },
            pod_logs: PathBuf::new(),
            node_ip: None,
        };
        let tls = ReloadingTls::new(config, "node-1").expect("a certificate");
        (tls, directory.join("kubelet.crt"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_certificate_names_user_and_groups() {
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
            Some(RequestUser::Authenticated(UserInfo {
                name: "kube-apiserver".to_owned(),
                groups: vec!["system:masters".to_owned()],
                ..UserInfo::default()
            }))
        );
        assert_eq!(identity(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
