use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ClientConfig;

use crate::any_server;
use crate::error::{HarnessError, file};

/// A CA and one client certificate for the node API.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// A certificate for a name, signed by itself, and its key, both as PEM.
///
/// # Errors
/// Fails if the name is not valid.
pub fn self_signed(name: &str) -> Result<(String, String), HarnessError> {
    let made = |what| move |source| HarnessError::Certificate { what, source };
    let key = KeyPair::generate().map_err(made("a key"))?;
    let params = CertificateParams::new(vec![name.to_owned()]);
    let certificate = params
        .and_then(|params| params.self_signed(&key))
        .map_err(made("a certificate"))?;
    Ok((certificate.pem(), key.serialize_pem()))
}

impl Pki {
    /// Creates both and writes them into `dir`.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn create(dir: &Path) -> Result<Self, HarnessError> {
        let made = |what| move |source| HarnessError::Certificate { what, source };
        let ca_key = KeyPair::generate().map_err(made("a key"))?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "polylet-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = params
            .self_signed(&ca_key)
            .map_err(made("a CA certificate"))?;
        let issuer = Issuer::new(params, ca_key);

        let key = KeyPair::generate().map_err(made("a key"))?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "polylet-test");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client = params
            .signed_by(&key, &issuer)
            .map_err(made("a client certificate"))?;

        let files = [
            ("ca.pem", ca.pem()),
            ("client.pem", client.pem()),
            ("client.key", key.serialize_pem()),
        ];
        for (name, text) in files {
            let path = dir.join(name);
            file("write", &path, fs::write(&path, text))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Path of the CA certificate.
    pub fn authority(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Paths of the client certificate and key, for `curl --cert … --key … -k`.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.dir.join("client.pem"), self.dir.join("client.key"))
    }

    /// A TLS client configuration, with the client certificate or anonymous. The server certificate
    /// is self-signed and not verified.
    ///
    /// # Errors
    /// Fails if the certificate cannot be read or used.
    pub fn tls(&self, anonymous: bool) -> Result<Arc<ClientConfig>, HarnessError> {
        let client = self.client();
        any_server::tls((!anonymous).then_some(&client))
    }
}
