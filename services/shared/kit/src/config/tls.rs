//! Names of cipher suites and numbers of key exchange groups, as a kubelet accepts them, and which of them
//! Polylet offers.

use super::KubeletConfiguration;
use super::problems::Problems;

/// Cipher suites of TLS 1.2 that are offered.
pub const AVAILABLE_TLS12_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Those of TLS 1.3, which are offered in any case.
const TLS13_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// Those that a kubelet has and Polylet never offers: without forward secrecy or without authenticated
/// encryption.
const UNAVAILABLE_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Key exchange groups that are offered: P-256, P-384 and X25519, by their numbers at IANA.
pub const AVAILABLE_CURVES: &[i32] = &[23, 24, 29];

/// Those that a kubelet has and Polylet does not: P-521, SecP256r1MLKEM768, X25519MLKEM768,
/// SecP384r1MLKEM1024.
const UNAVAILABLE_CURVES: &[i32] = &[25, 4587, 4588, 4589];

const VERSIONS: &[&str] = &[
    "",
    "VersionTLS10",
    "VersionTLS11",
    "VersionTLS12",
    "VersionTLS13",
];

/// Validation, with the kubelet's messages.
pub(super) fn validate(config: &KubeletConfiguration, problems: &mut Problems) {
    let version = &config.tls_min_version;
    if !VERSIONS.contains(&version.as_str()) {
        problems.add("tlsMinVersion", format!("unknown tls version {version:?}"));
    }
    for (at, name) in config.tls_cipher_suites.iter().enumerate() {
        let known = [AVAILABLE_TLS12_SUITES, TLS13_SUITES, UNAVAILABLE_SUITES];
        if !known.concat().contains(&name.as_str()) {
            let message = format!("Cipher suite {name} not supported or doesn't exist");
            problems.add(&format!("tlsCipherSuites[{at}]"), message);
        }
    }
    let curves = &config.tls_curve_preferences;
    for (at, id) in curves.iter().enumerate() {
        let message = if !(1..=i32::from(u16::MAX)).contains(id) {
            format!("curve preference {id} is out of range (must be 1-65535)")
        } else if curves.iter().take(at).any(|before| before == id) {
            format!("duplicate curve preference {id}")
        } else if !AVAILABLE_CURVES.contains(id) && !UNAVAILABLE_CURVES.contains(id) {
            format!("curve preference {id} is not supported")
        } else {
            continue;
        };
        problems.add(&format!("tlsCurvePreferences[{at}]"), message);
    }
    if !curves.is_empty() && !curves.iter().any(|id| AVAILABLE_CURVES.contains(id)) {
        let message = "none of them is available; allowed are 23 (P-256), 24 (P-384), 29 (X25519)";
        problems.add("tlsCurvePreferences", message.to_owned());
    }
}

/// What is configured and not offered.
pub(super) fn warnings(config: &KubeletConfiguration) -> Vec<String> {
    let mut warnings = Vec::new();
    let version = &config.tls_min_version;
    if ["VersionTLS10", "VersionTLS11"].contains(&version.as_str()) {
        warnings.push(format!(
            "tlsMinVersion {version} is not available: TLS 1.2 is the oldest version that is offered"
        ));
    }
    let suites = &config.tls_cipher_suites;
    if version == "VersionTLS13" && !suites.is_empty() {
        let reason = "cipher suites of TLS 1.3 are not configurable";
        warnings.push(format!("tlsCipherSuites is ignored: {reason}"));
    } else {
        let unavailable = |name: &&String| UNAVAILABLE_SUITES.contains(&name.as_str());
        warnings.extend(
            suites
                .iter()
                .filter(unavailable)
                .map(|name| format!("tlsCipherSuites: {name} is not available and is not offered")),
        );
        let available = |name: &String| AVAILABLE_TLS12_SUITES.contains(&name.as_str());
        if !suites.is_empty() && !suites.iter().any(available) {
            let message =
                "tlsCipherSuites has no available suite of TLS 1.2: only TLS 1.3 is offered";
            warnings.push(message.to_owned());
        }
    }
    let curves = config.tls_curve_preferences.iter();
    let unavailable = curves.filter(|id| UNAVAILABLE_CURVES.contains(id));
    warnings.extend(
        unavailable.map(|id| {
            format!("tlsCurvePreferences: group {id} is not available and is not offered")
        }),
    );
    warnings
}
