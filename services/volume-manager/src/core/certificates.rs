//! Pod certificates and their keys: requested by pod-config, projected into files in memory.

use std::collections::BTreeMap;

use polylet_model::PodUid;

use super::blocked::Blocked;
use super::bytes::Bytes;
use super::pem;

/// Upstream's message while there is none.
const NOT_ISSUED: &str = "credential bundle is not issued yet";

/// Identifies one certificate: the source in a projected volume of a pod, and what it requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateKey {
    /// The uid of the pod.
    pub uid: PodUid,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of its service account.
    pub service_account: String,
    /// The name of the volume.
    pub volume: String,
    /// The index of the source in the volume.
    pub index: u32,
    /// The signer.
    pub signer: String,
    /// The key type: RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519.
    pub key_type: String,
    /// The longest lifetime in seconds; 0 leaves it to the API server.
    pub max_expiration_seconds: i32,
    /// `userAnnotations`, for the signer.
    pub annotations: BTreeMap<String, String>,
}

impl CertificateKey {
    /// Comes before all certificates of a pod, and after those of pods before it.
    pub(super) fn first_of(uid: &PodUid) -> Self {
        CertificateKey {
            uid: uid.clone(),
            max_expiration_seconds: i32::MIN,
            ..CertificateKey::default()
        }
    }
}

/// A certificate as files; an empty path means no file.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateSource {
    /// The certificate.
    pub key: CertificateKey,
    /// The path of the file with key and certificates.
    pub bundle_path: String,
    /// The path of the file with the key.
    pub key_path: String,
    /// The path of the file with the certificates.
    pub chain_path: String,
    /// The mode of the files.
    pub mode: u32,
    /// The owner of the files.
    pub uid: Option<u32>,
}

/// An issued certificate with its key, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The private key.
    pub key: Bytes,
    /// The certificate and its intermediates.
    pub chain: Bytes,
}

impl IssuedCertificate {
    /// Takes the chain as the signer returned it, reduced to its PEM blocks.
    pub fn new(key: String, chain: &str) -> Self {
        let blocks = pem::blocks(chain.as_bytes());
        Self {
            key: key.into_bytes().into(),
            chain: pem::certificates(blocks.iter().map(Vec::as_slice)).into(),
        }
    }
}

/// The state of a certificate as pod-config reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedCertificate {
    /// It has been issued.
    Issued(IssuedCertificate),
    /// Not issued yet, or not renewed; with the reason if there is one.
    Unknown(String),
    /// Denied, and why.
    Denied(String),
}

/// The last report that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateState {
    reported: Option<ReportedCertificate>,
}

impl CertificateState {
    /// The certificate, or why there is none.
    pub fn issued(&self) -> Result<IssuedCertificate, Blocked> {
        match &self.reported {
            Some(ReportedCertificate::Issued(issued)) => Ok(issued.clone()),
            Some(ReportedCertificate::Denied(reason)) => Err(Blocked::Failed(reason.clone())),
            Some(ReportedCertificate::Unknown(reason)) if !reason.is_empty() => {
                Err(Blocked::Missing(format!("{NOT_ISSUED}: {reason}")))
            }
            Some(ReportedCertificate::Unknown(_)) => Err(Blocked::Missing(NOT_ISSUED.to_owned())),
            None => Err(Blocked::Waiting("waiting for a certificate".to_owned())),
        }
    }

    /// Applies a report; returns whether anything has changed. `Unknown` does not replace a
    /// certificate or a denial.
    pub fn update(&mut self, report: ReportedCertificate) -> bool {
        let is_final = matches!(
            self.reported,
            Some(ReportedCertificate::Issued(_) | ReportedCertificate::Denied(_))
        );
        if is_final && matches!(report, ReportedCertificate::Unknown(_)) {
            return false;
        }
        let report = Some(report);
        let changed = self.reported != report;
        self.reported = report;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_does_not_replace_a_certificate() {
        let issued = || IssuedCertificate::new("k3y".into(), "");
        let mut state = CertificateState::default();
        assert!(matches!(state.issued(), Err(Blocked::Waiting(_))));
        assert!(state.update(ReportedCertificate::Unknown(String::new())));
        assert_eq!(state.issued(), Err(Blocked::Missing(NOT_ISSUED.into())));
        assert!(state.update(ReportedCertificate::Unknown("forbidden".into())));
        let message = format!("{NOT_ISSUED}: forbidden");
        assert_eq!(state.issued(), Err(Blocked::Missing(message)));
        assert!(state.update(ReportedCertificate::Issued(issued())));
        // pod-config has restarted and has none yet: files stay as they are.
        assert!(!state.update(ReportedCertificate::Unknown(String::new())));
        assert_eq!(state.issued(), Ok(issued()));
        assert!(!state.update(ReportedCertificate::Issued(issued())));
        assert!(state.update(ReportedCertificate::Denied("denied".into())));
        assert_eq!(state.issued(), Err(Blocked::Failed("denied".into())));
        assert!(!state.update(ReportedCertificate::Unknown(String::new())));
        assert!(!format!("{:?}", issued()).contains("k3y"));
    }
}
