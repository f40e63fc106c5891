//! Keys of pods, and the stub requests that show who holds them. A key is in memory alone, and is
//! printed nowhere.

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};

/// No key can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("unknown key type {0:?}")]
    Unknown(String),
    #[error(
        "keys of type {0} are not made by this node: those of ECDSAP256, ECDSAP384, ED25519 are"
    )]
    Unmade(String),
    #[error("while generating keypair")]
    Make(#[source] rcgen::Error),
}

/// A key, as PKCS#8 in PEM, and a PKCS#10 request of nobody in particular that it has signed.
pub(crate) struct Key {
    pub(crate) pem: String,
    pub(crate) stub: Vec<u8>,
}

/// Makes a key: of some kinds that takes seconds.
pub(crate) fn make(kind: &str) -> Result<Key, KeyError> {
    let algorithm = match kind {
        "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
        "ED25519" => &PKCS_ED25519,
        "RSA3072" | "RSA4096" | "ECDSAP521" => return Err(KeyError::Unmade(kind.to_owned())),
        other => return Err(KeyError::Unknown(other.to_owned())),
    };
    let key = KeyPair::generate_for(algorithm).map_err(KeyError::Make)?;
    let mut nobody = CertificateParams::default();
    nobody.distinguished_name = DistinguishedName::new();
    let stub = nobody.serialize_request(&key).map_err(KeyError::Make)?;
    Ok(Key {
        pem: key.serialize_pem(),
        stub: stub.der().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_key() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519"] {
            let key = make(kind).unwrap();
            assert!(key.pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));
            assert!(!key.stub.is_empty());
        }
        assert!(matches!(make("RSA3072"), Err(KeyError::Unmade(_))));
        assert!(matches!(make("RSA1024"), Err(KeyError::Unknown(_))));
    }
}
