//! RSA, which ring signs with but does not make keys of.

use rcgen::KeyPair;
use rsa::RsaPrivateKey;
use rsa::pkcs8::EncodePrivateKey;
use rsa::rand_core::UnwrapErr;

use super::KeyError;
use p521::elliptic_curve::common::getrandom::SysRng;

/// A key whose modulus has so many bits. Finding its primes takes a processor some seconds.
pub(super) fn make(bits: usize) -> Result<KeyPair, KeyError> {
    // The kernel of a node that is up never lacks random bytes.
    let mut random = UnwrapErr(SysRng);
    let key = RsaPrivateKey::new(&mut random, bits);
    let key = key.map_err(|source| KeyError::Rsa { bits, source })?;
    let der = key.to_pkcs8_der().map_err(KeyError::Write)?;
    KeyPair::try_from(der.as_bytes()).map_err(KeyError::Make)
}
