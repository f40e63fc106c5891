//! Private keys of pods, and the stub requests that prove their possession. Keys are kept in memory
//! only and never printed.

mod p521;
mod rsa;

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};

/// Failed key generation; the messages are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("unknown key type {0:?}")]
    Unknown(String),
    #[error("while generating keypair")]
    Generate(#[source] rcgen::Error),
    #[error("while generating RSA {bits} key")]
    Rsa {
        bits: usize,
        #[source]
        source: ::rsa::Error,
    },
    #[error("while generating ECDSA P521 key: {0}")]
    P521(&'static str),
    #[error("while marshaling key to PKCS#8")]
    Encode(#[source] ::rsa::pkcs8::Error),
}

/// A key as PKCS#8 in PEM, and a PKCS#10 request signed by it, with an empty subject.
pub(crate) struct PrivateKey {
    pub(crate) pem: String,
    pub(crate) stub_request: Vec<u8>,
}

/// Whether generation takes seconds of processor time.
pub(crate) fn is_slow(kind: &str) -> bool {
    kind.starts_with("RSA")
}

/// Generates a key of a type.
pub(crate) fn generate(kind: &str) -> Result<PrivateKey, KeyError> {
    let generate = |of| KeyPair::generate_for(of).map_err(KeyError::Generate);
    let key = match kind {
        "ECDSAP256" => generate(&PKCS_ECDSA_P256_SHA256)?,
        "ECDSAP384" => generate(&PKCS_ECDSA_P384_SHA384)?,
        "ED25519" => generate(&PKCS_ED25519)?,
        "RSA3072" => rsa::generate(3072)?,
        "RSA4096" => rsa::generate(4096)?,
        "ECDSAP521" => return p521::generate(),
        other => return Err(KeyError::Unknown(other.to_owned())),
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let stub = params.serialize_request(&key).map_err(KeyError::Generate)?;
    Ok(PrivateKey {
        pem: key.serialize_pem(),
        stub_request: stub.der().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn all_key_types_are_generated() {
        // RSA4096 takes too long here; tests/e2e cover it.
        for kind in ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"] {
            let key = generate(kind).unwrap();
            assert!(
                key.pem.starts_with("-----BEGIN PRIVATE KEY-----\n"),
                "{kind}"
            );
            assert!(key.pem.ends_with("-----END PRIVATE KEY-----\n"), "{kind}");
            let (rest, _) = X509CertificationRequest::from_der(&key.stub_request).unwrap();
            assert!(rest.is_empty(), "{kind}");
        }
        assert!(matches!(generate("RSA1024"), Err(KeyError::Unknown(_))));
    }
}
