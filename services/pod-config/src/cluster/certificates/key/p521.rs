//! ECDSA keys on the curve P-521, which ring does not support.

use p521::SecretKey;
use p521::ecdsa::signature::Signer;
use p521::ecdsa::{Signature, SigningKey};
use p521::elliptic_curve::Generate;
use p521::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use yasna::models::ObjectIdentifier;
use yasna::{Tag, construct_der};

use super::{KeyError, PrivateKey};

/// ecdsa-with-SHA512 of RFC 5758.
const ECDSA_WITH_SHA512: &[u64] = &[1, 2, 840, 10045, 4, 3, 4];

/// Generates a key and its stub request.
pub(super) fn generate() -> Result<PrivateKey, KeyError> {
    let key = SecretKey::try_generate().map_err(|_| KeyError::P521("no random bytes"))?;
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(KeyError::Encode)?;
    let public = key.public_key().to_public_key_der();
    let public = public.map_err(|_| KeyError::P521("encoding the public key failed"))?;
    let info = request_info(public.as_bytes());
    let signed: Result<Signature, _> = SigningKey::from(key).try_sign(&info);
    let signature = signed.map_err(|_| KeyError::P521("signing failed"))?;
    Ok(PrivateKey {
        pem: pem.to_string(),
        stub_request: request(&info, signature.to_der().as_bytes()),
    })
}

/// The CertificationRequestInfo of RFC 2986, with neither subject nor attributes.
fn request_info(public: &[u8]) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_sequence(|_| {});
            writer.next().write_der(public);
            let attributes = writer.next();
            attributes.write_tagged_implicit(Tag::context(0), |writer| writer.write_set(|_| {}));
        });
    })
}

/// The CertificationRequest of RFC 2986.
fn request(info: &[u8], signature: &[u8]) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(info);
            writer.next().write_sequence(|writer| {
                let algorithm = ObjectIdentifier::from_slice(ECDSA_WITH_SHA512);
                writer.next().write_oid(&algorithm);
            });
            let bits = signature.len() * 8;
            writer.next().write_bitvec_bytes(signature, bits);
        });
    })
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::VerifyingKey;
    use p521::ecdsa::signature::Verifier;
    use p521::pkcs8::{DecodePrivateKey, DecodePublicKey};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn request_is_signed_by_the_key() {
        let generated = generate().unwrap();
        let key = SecretKey::from_pkcs8_pem(&generated.pem).unwrap();
        let (_, request) = X509CertificationRequest::from_der(&generated.stub_request).unwrap();
        let info = &request.certification_request_info;
        assert_eq!(info.subject.iter().count(), 0);
        assert_eq!(info.attributes().len(), 0);
        let public_key = VerifyingKey::from_public_key_der(info.subject_pki.raw).unwrap();
        assert_eq!(public_key, VerifyingKey::from(&key.public_key()));
        let signature = Signature::from_der(&request.signature_value.data).unwrap();
        assert!(public_key.verify(info.raw, &signature).is_ok());
    }
}
