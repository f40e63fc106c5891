//! `tlsMinVersion`, `tlsCipherSuites` and `tlsCurvePreferences`: what is offered in a handshake. The names
//! were validated with the configuration; those that are not available here have a warning there.

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

static ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
static LATEST_VERSION: &[&SupportedProtocolVersion] = &[&TLS13];

/// The settings, as configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    pub(crate) min_version: String,
    /// Names of Go's `crypto/tls`; by default all.
    pub(crate) cipher_suites: Vec<String>,
    /// Numbers of IANA, as Go's `CurveID`; by default all.
    pub(crate) curves: Vec<i32>,
}

impl TlsSettings {
    /// The versions of TLS; those before 1.2 are never offered.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.min_version == "VersionTLS13" {
            LATEST_VERSION
        } else {
            ALL_VERSIONS
        }
    }

    /// Cipher suites and key exchange groups. As with Go, those of TLS 1.3 are not configurable.
    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            let names = self.cipher_suites.iter();
            let chosen: Vec<CipherSuite> = names.filter_map(|name| suite(name)).collect();
            provider.cipher_suites.retain(|suite| {
                suite.version().version == TLS13.version || chosen.contains(&suite.suite())
            });
        }
        if !self.curves.is_empty() {
            provider.kx_groups.retain(|group| {
                let number = i32::from(u16::from(group.name()));
                self.curves.contains(&number)
            });
        }
        provider
    }
}

/// A cipher suite of TLS 1.2 by its name, or the one that Go had before.
fn suite(name: &str) -> Option<CipherSuite> {
    Some(match name {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        }
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        }
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
        | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
        }
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustls::NamedGroup;

    use super::*;

    #[test]
    fn configured_suites_and_curves_alone_are_offered() {
        let all = TlsSettings::default();
        assert_eq!(all.versions().len(), 2);
        assert_eq!(all.provider().cipher_suites.len(), 9);
        let settings = TlsSettings {
            min_version: "VersionTLS13".to_owned(),
            cipher_suites: vec![
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305".to_owned(),
                "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned(),
            ],
            curves: vec![24, 25, 4588],
        };
        assert_eq!(settings.versions().len(), 1);
        let provider = settings.provider();
        let suites: Vec<_> = provider.cipher_suites.iter().map(|s| s.suite()).collect();
        assert_eq!(
            suites,
            [
                CipherSuite::TLS13_AES_256_GCM_SHA384,
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ]
        );
        let groups: Vec<_> = provider.kx_groups.iter().map(|g| g.name()).collect();
        assert_eq!(groups, [NamedGroup::secp384r1]);
    }

    /// The configuration warns about exactly those that this build does not offer.
    #[test]
    fn available_names_are_those_without_a_warning() {
        use polylet_kit::config::{AVAILABLE_CURVES, AVAILABLE_TLS12_SUITES};
        let offered = TlsSettings::default().provider();
        for name in AVAILABLE_TLS12_SUITES {
            let suite = suite(name).unwrap_or_else(|| panic!("{name} is not mapped"));
            assert!(
                offered.cipher_suites.iter().any(|s| s.suite() == suite),
                "{name}"
            );
        }
        let groups = offered.kx_groups.iter().map(|group| group.name());
        let mut numbers: Vec<i32> = groups.map(|group| i32::from(u16::from(group))).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, AVAILABLE_CURVES);
    }
}
