//! The identity in a client's certificate, verified for each request of its connection.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConnection;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::ReloadingTls;
use crate::core::access::{RequestUser, UserInfo};

/// Verifies client certificates against the client CA.
pub(super) type ClientVerifier = Arc<dyn ClientCertVerifier>;

/// The certificates that a client has presented in its handshake, its own one first.
///
/// As upstream, they are verified for each request: since the handshake, they may have expired, or the client
/// CA may have been replaced.
pub(crate) struct ClientChain {
    certificates: Vec<CertificateDer<'static>>,
    user: UserInfo,
    /// Signatures are expensive, so that the last result is used while it holds.
    last: Mutex<Option<ChainVerification>>,
}

/// The result of a verification.
struct ChainVerification {
    verifier: ClientVerifier,
    /// The seconds in which no certificate expires or becomes valid.
    holds: Range<u64>,
    is_valid: bool,
}

impl ClientChain {
    /// The chain of this connection; `None` if the client has no certificate, or one that names no user.
    pub(crate) fn from_connection(connection: &ServerConnection) -> Option<Self> {
        Self::new(connection.peer_certificates()?.to_vec())
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        Some(Self {
            user: user(certificates.first()?)?,
            certificates,
            last: Mutex::new(None),
        })
    }

    /// The sender of a request that arrives now.
    pub(crate) fn request_user(&self, tls: &ReloadingTls) -> RequestUser {
        match tls.client_verifier() {
            Some(verifier) if self.is_valid(&verifier, UnixTime::now()) => {
                RequestUser::Authenticated(self.user.clone())
            }
            _ => RequestUser::Anonymous,
        }
    }

    fn is_valid(&self, verifier: &ClientVerifier, now: UnixTime) -> bool {
        let mut last = self.lock();
        if let Some(last) = last.as_ref().filter(|last| last.holds_for(verifier, now)) {
            return last.is_valid;
        }
        let verification = self.verify(verifier, now);
        last.insert(verification).is_valid
    }

    fn verify(&self, verifier: &ClientVerifier, now: UnixTime) -> ChainVerification {
        let is_valid = match self.certificates.split_first() {
            Some((own, others)) => verifier.verify_client_cert(own, others, now).is_ok(),
            None => false,
        };
        ChainVerification {
            verifier: Arc::clone(verifier),
            holds: unchanged(&self.certificates, now.as_secs()),
            is_valid,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ChainVerification>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChainVerification {
    fn holds_for(&self, verifier: &ClientVerifier, now: UnixTime) -> bool {
        Arc::ptr_eq(&self.verifier, verifier) && self.holds.contains(&now.as_secs())
    }
}

/// From now until the next second in which one of the certificates expires or becomes valid; empty if one of
/// them cannot be read.
fn unchanged(certificates: &[CertificateDer<'_>], now: u64) -> Range<u64> {
    let mut end = u64::MAX;
    for certificate in certificates {
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return now..now;
        };
        let validity = parsed.validity();
        let [first, last] = [&validity.not_before, &validity.not_after]
            .map(|time| u64::try_from(time.timestamp()).unwrap_or(0));
        // The last second is still a valid one.
        let changes = [first, last.saturating_add(1)];
        end = changes
            .into_iter()
            .filter(|at| *at > now)
            .fold(end, u64::min);
    }
    now..end
}

/// The common name and organisations of a certificate.
fn user(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|organisation| organisation.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(UserInfo {
        name,
        groups,
        ..UserInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use rustls::client::danger::HandshakeSignatureValid;
    use rustls::server::danger::ClientCertVerified;
    use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

    use super::super::test_support::TestAuthority;
    use super::*;

    /// Counts how often a chain is verified by the other verifier.
    #[derive(Debug)]
    struct CountingVerifier(ClientVerifier, AtomicUsize);

    impl ClientCertVerifier for CountingVerifier {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            self.0.root_hint_subjects()
        }

        fn verify_client_cert(
            &self,
            own: &CertificateDer<'_>,
            others: &[CertificateDer<'_>],
            now: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.verify_client_cert(own, others, now)
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.0
                .verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.0
                .verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_verify_schemes()
        }
    }

    fn verifier(authority: &TestAuthority) -> Arc<CountingVerifier> {
        Arc::new(CountingVerifier(authority.verifier(), AtomicUsize::new(0)))
    }

    /// The start of a year.
    fn start_of(year: i32) -> UnixTime {
        let start = rcgen::date_time_ymd(year, 1, 1).unix_timestamp();
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(start).unwrap()))
    }

    #[test]
    fn certificate_is_valid_until_it_expires_or_its_authority_is_replaced() {
        let (authority, other) = (TestAuthority::new("ca"), TestAuthority::new("ca"));
        let (certificate, _) = authority.issue("someone", 2020..2030);
        let chain = ClientChain::new(vec![certificate]).expect("a name");
        let (current, replaced) = (verifier(&authority), verifier(&other));
        // Whether the chain is valid, and how often it has been verified by the two.
        for (year, verifier, valid, verified) in [
            (2019, &current, false, [1, 0]),
            (2020, &current, true, [2, 0]),
            (2025, &current, true, [2, 0]),
            (2025, &replaced, false, [2, 1]),
            (2026, &replaced, false, [2, 1]),
            (2026, &current, true, [3, 1]),
            (2031, &current, false, [4, 1]),
            (2032, &current, false, [4, 1]),
            // The clock was wrong.
            (2026, &current, true, [5, 1]),
            (2029, &current, true, [5, 1]),
        ] {
            let any: ClientVerifier = Arc::clone(verifier) as ClientVerifier;
            let counts = || [&current, &replaced].map(|one| one.1.load(Ordering::Relaxed));
            let found = chain.is_valid(&any, start_of(year));
            assert_eq!((found, counts()), (valid, verified), "{year}");
        }
    }

    #[test]
    fn result_holds_until_the_next_certificate_of_the_chain_changes() {
        let authority = TestAuthority::new("ca");
        let chain = [2020..2030, 2010..2028, 2022..2040].map(|years| authority.issue("x", years).0);
        let second = |year| start_of(year).as_secs();
        for (now, end) in [
            (2000, second(2010)),
            (2021, second(2022)),
            (2025, second(2028) + 1),
            (2029, second(2030) + 1),
            (2041, u64::MAX),
        ] {
            assert_eq!(unchanged(&chain, second(now)), second(now)..end, "{now}");
        }
        let broken = [CertificateDer::from(vec![1, 2, 3])];
        assert!(unchanged(&broken, second(2025)).is_empty());
    }

    #[test]
    fn client_certificate_names_user_and_groups() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "kube-apiserver");
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:masters");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        assert_eq!(
            user(certificate.der()),
            Some(UserInfo {
                name: "kube-apiserver".to_owned(),
                groups: vec!["system:masters".to_owned()],
                ..UserInfo::default()
            })
        );
        assert_eq!(user(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
