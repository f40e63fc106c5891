//! A server with a certificate of its own, and an authority that signs those of its clients.

use std::ops::Range;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use super::client_chain::ClientVerifier;
use super::*;
use crate::config::{AccessPolicy, Switches};
use crate::core::access::AuthorizationMode;

/// A server with a certificate of its own in this directory, and the certificate.
pub(crate) fn self_signed(
    directory: &Path,
    tls: TlsSettings,
    client_ca: Option<PathBuf>,
) -> (ReloadingTls, PathBuf) {
    let config = Config {
        https: None,
        healthz: None,
        read_only: None,
        certificate: ServingCertificate::SelfSigned(directory.to_owned()),
        client_ca,
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

/// Signs certificates of clients.
pub(crate) struct TestAuthority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate for this user, valid from the start of the first year to that of the last, and its key.
    pub(crate) fn issue(
        &self,
        user: &str,
        years: Range<i32>,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        (certificate.der().clone(), key)
    }

    /// The verifier of its certificates.
    pub(super) fn verifier(&self) -> ClientVerifier {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        std::fs::write(&path, self.pem()).unwrap();
        let provider = Arc::new(TlsSettings::default().provider());
        super::verifier(&path, provider).unwrap()
    }
}
