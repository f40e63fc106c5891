use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::error::{HarnessError, file};

/// A certificate and its key.
#[derive(Debug, Clone)]
pub(super) struct KeyPairFiles {
    /// Path of the certificate, PEM.
    pub(super) certificate: PathBuf,
    /// Path of the key, PEM.
    pub(super) key: PathBuf,
}

/// The cluster's only CA, for server and client certificates.
#[derive(Debug)]
pub(super) struct CertificateAuthority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

fn made(what: &'static str) -> impl Fn(rcgen::Error) -> HarnessError {
    move |source| HarnessError::Certificate { what, source }
}

fn write(path: &Path, text: &str) -> Result<(), HarnessError> {
    file("write", path, fs::write(path, text))
}

impl CertificateAuthority {
    /// Creates a CA in `dir`.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn create(dir: &Path) -> Result<Self, HarnessError> {
        let key = KeyPair::generate().map_err(made("a key"))?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "polylet-test-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).map_err(made("a CA certificate"))?;
        write(&dir.join("ca.crt"), &certificate.pem())?;
        write(&dir.join("ca.key"), &key.serialize_pem())?;
        Ok(Self {
            dir: dir.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Paths of the CA certificate and key.
    pub(super) fn own(&self) -> KeyPairFiles {
        self.at("ca")
    }

    /// Paths of an already signed certificate and its key.
    pub(super) fn issued(&self, file: &str) -> KeyPairFiles {
        self.at(file)
    }

    /// A client certificate; user and groups are in its subject, as Kubernetes expects.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn client(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<KeyPairFiles, HarnessError> {
        self.sign(file, client(user, groups))
    }

    /// Like [`Self::client`], but expired.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn ended_client(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<KeyPairFiles, HarnessError> {
        let mut params = client(user, groups);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign(file, params)
    }

    /// A server certificate for the loopback address and these names, also valid for clients.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn server(
        &self,
        file: &str,
        names: &[SanType],
    ) -> Result<KeyPairFiles, HarnessError> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])
            .map_err(made("subject alternative names"))?;
        params
            .subject_alt_names
            .push(SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
        params.subject_alt_names.extend_from_slice(names);
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign(file, params)
    }

    /// A key pair for signing service account tokens; the certificate path holds the public key.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn tokens(&self) -> Result<KeyPairFiles, HarnessError> {
        let key = KeyPair::generate().map_err(made("a key"))?;
        let identity = self.at("tokens");
        write(&identity.certificate, &key.public_key_pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> Result<KeyPairFiles, HarnessError> {
        let key = KeyPair::generate().map_err(made("a key"))?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(made("a certificate"))?;
        let identity = self.at(file);
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }

    fn at(&self, name: &str) -> KeyPairFiles {
        KeyPairFiles {
            certificate: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        }
    }
}

fn client(user: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params
            .distinguished_name
            .push(DnType::OrganizationName, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}
