//! The client certificate that the node keeps, and when it stands for the kubeconfig's own.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};
use x509_parser::pem::Pem;

/// The user of a kubeconfig's current context.
pub fn user(kubeconfig: &Kubeconfig) -> Option<&AuthInfo> {
    let name = user_name(kubeconfig)?;
    let named = kubeconfig.auth_infos.iter().find(|it| it.name == name)?;
    named.auth_info.as_ref()
}

/// The same, to be changed.
pub(crate) fn user_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut AuthInfo> {
    let name = user_name(kubeconfig)?.to_owned();
    let mut users = kubeconfig.auth_infos.iter_mut();
    users.find(|it| it.name == name)?.auth_info.as_mut()
}

/// The cluster of a kubeconfig's current context.
pub(crate) fn cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = &context(kubeconfig)?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    clusters.find(|it| it.name == *name)?.cluster.as_ref()
}

/// The same, to be changed.
pub(crate) fn cluster_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let name = context(kubeconfig)?.cluster.clone();
    let mut clusters = kubeconfig.clusters.iter_mut();
    clusters.find(|it| it.name == name)?.cluster.as_mut()
}

/// Whether a kept certificate counts: it can be read, and has not ended.
pub fn counts(kept: &Path) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    });
    let ends = std::fs::read(kept).ok().and_then(|pem| end(&pem));
    ends.is_some_and(|end| now < end)
}

/// When the first certificate of a file ends, in seconds since 1970.
fn end(pem: &[u8]) -> Option<i64> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Where certificates are rotated, the kept one stands for the one that the kubeconfig holds or
/// names, as soon as there is one and while it is good: nobody has to rewrite the kubeconfig.
pub(crate) fn stand_in(kubeconfig: &mut Kubeconfig, kept: &Path) {
    let Some(user) = user_mut(kubeconfig) else {
        return;
    };
    let has = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    if !has || !counts(kept) {
        return;
    }
    let path = kept.to_string_lossy().into_owned();
    user.client_certificate_data = None;
    user.client_key_data = None;
    user.client_certificate = Some(path.clone());
    user.client_key = Some(path);
}

fn user_name(kubeconfig: &Kubeconfig) -> Option<&str> {
    context(kubeconfig)?.user.as_deref()
}

fn context(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let current = kubeconfig.current_context.as_deref()?;
    let mut contexts = kubeconfig.contexts.iter();
    contexts
        .find(|named| named.name == current)?
        .context
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: &str = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
        users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==}}]\n";

    #[test]
    fn the_kept_certificate_counts_while_it_is_good() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kubelet-client-current.pem");
        let read = || serde_yaml_ng::from_str::<Kubeconfig>(HELD).unwrap();
        let used = |kept: &Path| {
            let mut kubeconfig = read();
            stand_in(&mut kubeconfig, kept);
            user(&kubeconfig).unwrap().client_certificate.clone()
        };
        assert_eq!(used(&kept), None, "there is none");
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, counted) in [(2001, false), (4000, true)] {
            let mut params = rcgen::CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            std::fs::write(&kept, params.self_signed(&key).unwrap().pem()).unwrap();
            assert_eq!(used(&kept).is_some(), counted, "{year}");
        }
        let mut token = read();
        token.auth_infos = serde_yaml_ng::from_str("[{name: u, user: {token: t}}]").unwrap();
        stand_in(&mut token, &kept);
        assert_eq!(user(&token).unwrap().client_certificate, None);
    }
}
