//! RSA keys, which ring signs with but cannot generate.

use rcgen::KeyPair;
use rsa::RsaPrivateKey;
use rsa::pkcs8::EncodePrivateKey;
use rsa::rand_core::UnwrapErr;

use super::KeyError;
use p521::elliptic_curve::common::getrandom::SysRng;

/// Generates a key with a modulus of `bits`, which takes seconds of processor time.
pub(super) fn generate(bits: usize) -> Result<KeyPair, KeyError> {
    // The kernel's random numbers are available once it has booted.
    let mut random = UnwrapErr(SysRng);
    let key = RsaPrivateKey::new(&mut random, bits);
    let key = key.map_err(|source| KeyError::Rsa { bits, source })?;
    let der = key.to_pkcs8_der().map_err(KeyError::Encode)?;
    KeyPair::try_from(der.as_bytes()).map_err(KeyError::Generate)
}
