//! TLS of the node API: the serving certificate, and the identity in client certificates.

mod certificate;
mod client_chain;
#[cfg(test)]
pub(crate) mod test_support;

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

pub(crate) use self::client_chain::ClientChain;
use self::client_chain::ClientVerifier;
use crate::config::{Config, ServingCertificate};
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

/// Accepts TLS connections, and reloads changed files, so that a renewed certificate is used from the next
/// connection on, and another client CA from the next request on. Clones share what is loaded.
#[derive(Clone)]
pub(crate) struct ReloadingTls(Arc<Mutex<TlsFiles>>);

impl ReloadingTls {
    /// Loads the files. A certificate that the cluster has not signed yet may be missing.
    pub(crate) fn new(config: Config, node: &str) -> Result<Self, ServingTlsError> {
        let files = TlsFiles::new(config, node)?;
        Ok(Self(Arc::new(Mutex::new(files))))
    }

    /// The acceptor of the next connection; `None` while there is no certificate.
    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        let mut files = self.lock();
        let loaded = files.reload()?;
        Some(loaded.acceptor.clone())
    }

    /// The verifier of the next request's certificate; `None` without a client CA.
    fn client_verifier(&self) -> Option<ClientVerifier> {
        let mut files = self.lock();
        files.reload()?.client_verifier.clone()
    }

    fn lock(&self) -> MutexGuard<'_, TlsFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files, and what was loaded from them.
struct TlsFiles {
    config: Config,
    /// Certificate and key.
    files: (PathBuf, PathBuf),
    stamps: Vec<FileStamp>,
    loaded: Option<LoadedTls>,
}

/// Identifies the version of a file: inode and modification time.
type FileStamp = Option<(u64, i64, i64)>;

/// What is made of one version of the files.
struct LoadedTls {
    acceptor: TlsAcceptor,
    client_verifier: Option<ClientVerifier>,
}

impl TlsFiles {
    fn new(config: Config, node: &str) -> Result<Self, ServingTlsError> {
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
            stamps: Vec::new(),
            loaded: None,
        };
        tls.stamps = tls.stamps();
        match tls.load() {
            Ok(loaded) => tls.loaded = Some(loaded),
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

    /// What is loaded, after changed files have been read.
    fn reload(&mut self) -> Option<&LoadedTls> {
        let stamps = self.stamps();
        if stamps != self.stamps {
            self.stamps = stamps;
            match self.load() {
                Ok(loaded) => {
                    tracing::info!("serving certificate and client CA reloaded");
                    self.loaded = Some(loaded);
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
        self.loaded.as_ref()
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

    fn load(&self) -> Result<LoadedTls, ServingTlsError> {
        let Config { client_ca, tls, .. } = &self.config;
        load(&self.files, client_ca.as_deref(), tls)
    }
}

/// The acceptor with the serving certificate, and the verifier of client certificates if there is a client
/// CA; a client without a certificate may connect and is authenticated later.
fn load(
    (certificate, key): &(PathBuf, PathBuf),
    client_ca: Option<&Path>,
    settings: &TlsSettings,
) -> Result<LoadedTls, ServingTlsError> {
    let provider = Arc::new(settings.provider());
    let client_verifier = client_ca
        .map(|path| verifier(path, Arc::clone(&provider)))
        .transpose()?;
    let (chain, key) = (read_chain(certificate)?, read_key(key)?);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(settings.versions())
        .map_err(ServingTlsError::Settings)?
        .with_client_cert_verifier(
            client_verifier
                .clone()
                .unwrap_or_else(WebPkiClientVerifier::no_client_auth),
        )
        .with_single_cert(chain, key)
        .map_err(ServingTlsError::KeyPair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // No session is resumed: its client's certificate would be taken over without being verified.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(LoadedTls {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        client_verifier,
    })
}

/// The verifier of client certificates against the CA in this file.
fn verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<ClientVerifier, ServingTlsError> {
    WebPkiClientVerifier::builder_with_provider(roots(path)?.into(), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|source| ServingTlsError::ClientCa {
            path: path.to_owned(),
            source: source.into(),
        })
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
