//! Projected volumes: several sources in one.

use k8s_openapi::api::core::v1 as api;

use super::manifest::{Reader, default_mode};
use super::objects::ObjectKind;
use super::spec::{Source, TokenSource};
use super::tokens::TokenKey;
use super::usage::only_user;

const SUPPORTED: &str = "secret, configMap, downwardAPI, serviceAccountToken";
/// The API's default.
const EXPIRATION_SECONDS: i64 = 3600;
/// Of tokens that belong to one user or group alone.
const TOKEN_MODE: u32 = 0o600;

impl Reader<'_> {
    /// The sources of a projected volume, in their order.
    pub(super) fn projected(
        &self,
        name: &str,
        source: &api::ProjectedVolumeSource,
    ) -> Result<Vec<Source>, String> {
        let mode = default_mode(source.default_mode)?;
        let one = |source: &api::VolumeProjection| {
            if let Some(s) = &source.secret {
                let items = s.items.as_ref();
                self.object(ObjectKind::Secret, &s.name, items, mode, s.optional)
            } else if let Some(s) = &source.config_map {
                let items = s.items.as_ref();
                self.object(ObjectKind::ConfigMap, &s.name, items, mode, s.optional)
            } else if let Some(s) = &source.downward_api {
                Ok(self.downward(s.items.as_ref(), mode))
            } else if let Some(s) = &source.service_account_token {
                self.token(name, s, mode)
            } else {
                let other = unsupported(source);
                Err(format!(
                    "volume \"{name}\" projects {other}, which this node does not support: supported are {SUPPORTED}"
                ))
            }
        };
        source.sources.iter().flatten().map(one).collect()
    }

    fn token(
        &self,
        volume: &str,
        source: &api::ServiceAccountTokenProjection,
        mode: u32,
    ) -> Result<Source, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" projects serviceAccountToken, which only a pod of the API server can have"
            ));
        }
        let spec = self.pod.spec.as_ref();
        let uid = spec.and_then(only_user);
        let metadata = &self.pod.metadata;
        let key = TokenKey {
            uid: metadata.uid.clone().unwrap_or_default(),
            namespace: self.namespace(),
            pod: metadata.name.clone().unwrap_or_default(),
            service_account: self.service_account(),
            audience: source.audience.clone().unwrap_or_default(),
            expiration_seconds: source.expiration_seconds.unwrap_or(EXPIRATION_SECONDS),
        };
        let narrow = uid.is_some() || self.gid.is_some();
        Ok(Source::Token(TokenSource {
            key,
            path: source.path.clone(),
            mode: if narrow { TOKEN_MODE } else { mode },
            uid,
        }))
    }
}

fn unsupported(source: &api::VolumeProjection) -> &'static str {
    if source.cluster_trust_bundle.is_some() {
        "clusterTrustBundle"
    } else if source.pod_certificate.is_some() {
        "podCertificate"
    } else {
        "something unknown"
    }
}
