//! The rotated client certificate, and when it replaces that of the kubeconfig.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::config::Kubeconfig;
use x509_parser::pem::Pem;

use crate::kubeconfig::current_user_mut;

/// Whether the certificate file can be read and the certificate has not expired.
pub fn is_valid(path: &Path) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    });
    let expires_at = std::fs::read(path).ok().and_then(|pem| expiry(&pem));
    expires_at.is_some_and(|expires_at| now < expires_at)
}

/// The expiry of the first certificate in a file, in seconds since 1970.
pub(crate) fn expiry(pem: &[u8]) -> Option<i64> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Replaces a client certificate in the kubeconfig by the rotated one, as long as that is valid, so
/// that the kubeconfig need not be rewritten at each rotation.
pub(crate) fn apply(kubeconfig: &mut Kubeconfig, rotated: &Path) {
    let Some(user) = current_user_mut(kubeconfig) else {
        return;
    };
    let has_certificate =
        user.client_certificate.is_some() || user.client_certificate_data.is_some();
    if !has_certificate || !is_valid(rotated) {
        return;
    }
    let path = rotated.to_string_lossy().into_owned();
    user.client_certificate_data = None;
    user.client_key_data = None;
    user.client_certificate = Some(path.clone());
    user.client_key = Some(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::current_user;

    const EMBEDDED: &str = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
        users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==}}]\n";

    #[test]
    fn a_valid_rotated_certificate_replaces_that_of_the_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let rotated = dir.path().join("kubelet-client-current.pem");
        let kubeconfig = || serde_yaml_ng::from_str::<Kubeconfig>(EMBEDDED).unwrap();
        let used = |rotated: &Path| {
            let mut kubeconfig = kubeconfig();
            apply(&mut kubeconfig, rotated);
            current_user(&kubeconfig)
                .unwrap()
                .client_certificate
                .clone()
        };
        assert_eq!(used(&rotated), None, "no file");
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, valid) in [(2001, false), (4000, true)] {
            let mut params = rcgen::CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            std::fs::write(&rotated, params.self_signed(&key).unwrap().pem()).unwrap();
            assert_eq!(used(&rotated).is_some(), valid, "{year}");
        }
        let mut token = kubeconfig();
        token.auth_infos = serde_yaml_ng::from_str("[{name: u, user: {token: t}}]").unwrap();
        apply(&mut token, &rotated);
        assert_eq!(current_user(&token).unwrap().client_certificate, None);
    }
}
