//! Certificates of pods, with their keys: had by pod-config, held by files in memory.

use std::collections::BTreeMap;

use super::objects::Bytes;
use super::payload::Blocked;
use super::pem;

/// What upstream says while there is none.
const NOT_YET: &str = "credential bundle is not issued yet";

/// Names one certificate: a source of a projected volume of a pod, and what it asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateKey {
    /// The pod's uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its service account.
    pub service_account: String,
    /// The volume.
    pub volume: String,
    /// The place of the source in it.
    pub index: u32,
    /// Who signs.
    pub signer: String,
    /// What kind of key: RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519.
    pub key_type: String,
    /// How long it may live at most; 0 leaves that to the API server.
    pub max_expiration_seconds: i32,
    /// What the signer is told by the user.
    pub annotations: BTreeMap<String, String>,
}

/// A certificate as a source of files; an empty path asks for none.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateSource {
    /// Which.
    pub key: CertificateKey,
    /// The file of key and certificates.
    pub bundle_path: String,
    /// That of the key alone.
    pub key_path: String,
    /// That of the certificates alone.
    pub chain_path: String,
    /// The mode of each.
    pub mode: u32,
    /// Who owns them.
    pub uid: Option<u32>,
}

/// A key and its certificates, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The key.
    pub key: Bytes,
    /// The certificate, and those that lead up from it.
    pub chain: Bytes,
}

impl Issued {
    /// As a signer gave it: blocks alone are kept of its certificates.
    pub fn new(key: String, chain: &str) -> Self {
        let blocks = pem::blocks(chain.as_bytes());
        Self {
            key: key.into_bytes().into(),
            chain: pem::certificates(blocks.iter().map(Vec::as_slice)).into(),
        }
    }
}

/// What was told of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It.
    Issued(Issued),
    /// There is none yet, or no new one; why, if that is known.
    Unknown(String),
    /// There will be none; why.
    Refused(String),
}

/// What is known of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    told: Option<Told>,
}

impl Certificate {
    /// What files shall hold, or what they wait for.
    pub fn issued(&self) -> Result<Issued, Blocked> {
        match &self.told {
            Some(Told::Issued(issued)) => Ok(issued.clone()),
            Some(Told::Refused(why)) => Err(Blocked::Failed(why.clone())),
            Some(Told::Unknown(why)) if !why.is_empty() => {
                Err(Blocked::Missing(format!("{NOT_YET}: {why}")))
            }
            Some(Told::Unknown(_)) => Err(Blocked::Missing(NOT_YET.to_owned())),
            None => Err(Blocked::Waiting("waiting for a certificate".to_owned())),
        }
    }

    /// Says whether anything is different now. That there is none yet takes nothing away.
    pub fn learn(&mut self, told: Told) -> bool {
        let stands = matches!(self.told, Some(Told::Issued(_) | Told::Refused(_)));
        if stands && matches!(told, Told::Unknown(_)) {
            return false;
        }
        let told = Some(told);
        let news = self.told != told;
        self.told = told;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_and_what_stands() {
        let one = || Issued::new("k3y".into(), "");
        let mut known = Certificate::default();
        assert!(matches!(known.issued(), Err(Blocked::Waiting(_))));
        assert!(known.learn(Told::Unknown(String::new())));
        assert_eq!(known.issued(), Err(Blocked::Missing(NOT_YET.into())));
        assert!(known.learn(Told::Unknown("forbidden".into())));
        let why = format!("{NOT_YET}: forbidden");
        assert_eq!(known.issued(), Err(Blocked::Missing(why)));
        assert!(known.learn(Told::Issued(one())));
        // A process that begins anew has none yet: files stay as they are.
        assert!(!known.learn(Told::Unknown(String::new())));
        assert_eq!(known.issued(), Ok(one()));
        assert!(!known.learn(Told::Issued(one())));
        assert!(known.learn(Told::Refused("denied".into())));
        assert_eq!(known.issued(), Err(Blocked::Failed("denied".into())));
        assert!(!known.learn(Told::Unknown(String::new())));
        assert!(!format!("{:?}", one()).contains("k3y"));
    }
}
