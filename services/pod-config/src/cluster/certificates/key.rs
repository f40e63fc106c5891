//! Keys of pods, and the stub requests that show who holds them. A key is in memory alone, and is
//! printed nowhere.

mod p521;
mod rsa;

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};

/// No key can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("unknown key type {0:?}")]
    Unknown(String),
    #[error("while generating keypair")]
    Make(#[source] rcgen::Error),
    #[error("while generating RSA {bits} key")]
    Rsa {
        bits: usize,
        #[source]
        source: ::rsa::Error,
    },
    #[error("while generating ECDSA P521 key: {0}")]
    P521(&'static str),
    #[error("while marshaling key to PKCS#8")]
    Write(#[source] ::rsa::pkcs8::Error),
}

/// A key, as PKCS#8 in PEM, and a PKCS#10 request of nobody in particular that it has signed.
pub(crate) struct Key {
    pub(crate) pem: String,
    pub(crate) stub: Vec<u8>,
}

/// Whether making one keeps a processor for seconds.
pub(crate) fn is_slow(kind: &str) -> bool {
    kind.starts_with("RSA")
}

/// Makes a key.
pub(crate) fn make(kind: &str) -> Result<Key, KeyError> {
    let generate = |of| KeyPair::generate_for(of).map_err(KeyError::Make);
    let key = match kind {
        "ECDSAP256" => generate(&PKCS_ECDSA_P256_SHA256)?,
        "ECDSAP384" => generate(&PKCS_ECDSA_P384_SHA384)?,
        "ED25519" => generate(&PKCS_ED25519)?,
        "RSA3072" => rsa::make(3072)?,
        "RSA4096" => rsa::make(4096)?,
        "ECDSAP521" => return p521::make(),
        other => return Err(KeyError::Unknown(other.to_owned())),
    };
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
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn every_kind_of_key() {
        // Large primes of RSA4096 take too long here; a real API server sees them in tests/e2e.
        for kind in ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"] {
            let key = make(kind).unwrap();
            assert!(
                key.pem.starts_with("-----BEGIN PRIVATE KEY-----\n"),
                "{kind}"
            );
            assert!(key.pem.ends_with("-----END PRIVATE KEY-----\n"), "{kind}");
            let (rest, _) = X509CertificationRequest::from_der(&key.stub).unwrap();
            assert!(rest.is_empty(), "{kind}");
        }
        assert!(matches!(make("RSA1024"), Err(KeyError::Unknown(_))));
    }
}
