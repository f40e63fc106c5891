//! The sources of projected volumes.

use k8s_openapi::api::core::v1 as api;

use super::ManifestParser;
use crate::core::certificates::{CertificateKey, CertificateSource};
use crate::core::cluster_trust_bundle::{self, TrustBundleSource};
use crate::core::files::default_mode;
use crate::core::reference_key::{ObjectKind, ReferenceKey};
use crate::core::spec::{FileSource, TokenSource};
use crate::core::tokens::PodTokenKey;
use crate::core::usage::only_user;

const SUPPORTED: &str =
    "secret, configMap, downwardAPI, serviceAccountToken, clusterTrustBundle, podCertificate";
/// The API's default lifetime of a token.
const EXPIRATION_SECONDS: i64 = 3600;
/// The mode of files that belong to one user or group.
const OWNER_MODE: u32 = 0o600;

impl ManifestParser<'_> {
    /// The sources of a projected volume, in order.
    pub(super) fn projected(
        &self,
        name: &str,
        source: &api::ProjectedVolumeSource,
    ) -> Result<Vec<FileSource>, String> {
        let mode = default_mode(source.default_mode)?;
        let file_source = |(index, source): (usize, &api::VolumeProjection)| {
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
            } else if let Some(s) = &source.cluster_trust_bundle {
                self.trust_bundle(s, mode)
            } else if let Some(s) = &source.pod_certificate {
                self.certificate(name, index, s, mode)
            } else {
                Err(format!(
                    "volume \"{name}\" projects something unknown, which this node does not support: supported are {SUPPORTED}"
                ))
            }
        };
        let sources = source.sources.iter().flatten();
        sources.enumerate().map(file_source).collect()
    }

    fn token(
        &self,
        volume: &str,
        source: &api::ServiceAccountTokenProjection,
        mode: u32,
    ) -> Result<FileSource, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" projects serviceAccountToken, which only a pod of the API server can have"
            ));
        }
        let (mode, uid) = self.owner(mode);
        let metadata = &self.pod.metadata;
        let key = PodTokenKey {
            uid: metadata.uid.clone().unwrap_or_default().into(),
            namespace: self.namespace(),
            pod: metadata.name.clone().unwrap_or_default(),
            service_account: self.service_account(),
            audience: source.audience.clone().unwrap_or_default(),
            expiration_seconds: source.expiration_seconds.unwrap_or(EXPIRATION_SECONDS),
        };
        Ok(FileSource::Token(TokenSource {
            key,
            path: source.path.clone(),
            mode,
            uid,
        }))
    }

    /// Mode and owner of a credential: readable by its owner only, where the containers run as one
    /// user or the pod has an `fsGroup`; as upstream.
    fn owner(&self, mode: u32) -> (u32, Option<u32>) {
        let uid = self.pod.spec.as_ref().and_then(only_user);
        let restricted = uid.is_some() || self.gid.is_some();
        (if restricted { OWNER_MODE } else { mode }, uid)
    }

    fn trust_bundle(
        &self,
        source: &api::ClusterTrustBundleProjection,
        mode: u32,
    ) -> Result<FileSource, String> {
        if !self.cluster {
            return Err(cluster_trust_bundle::NOT_SERVED.to_owned());
        }
        let (kind, name) = match (&source.name, &source.signer_name) {
            (Some(name), _) => (ObjectKind::TrustBundle, name),
            (None, Some(signer)) => (ObjectKind::TrustBundles, signer),
            (None, None) => return Err(cluster_trust_bundle::NO_NAME.to_owned()),
        };
        let (mode, uid) = self.owner(mode);
        Ok(FileSource::TrustBundle(TrustBundleSource {
            key: ReferenceKey {
                kind,
                namespace: String::new(),
                name: name.clone(),
                cluster: true,
            },
            selector: source.label_selector.clone(),
            optional: source.optional.unwrap_or(false),
            path: source.path.clone(),
            mode,
            uid,
        }))
    }

    fn certificate(
        &self,
        volume: &str,
        index: usize,
        source: &api::PodCertificateProjection,
        mode: u32,
    ) -> Result<FileSource, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" projects podCertificate, which only a pod of the API server can have"
            ));
        }
        let (mode, uid) = self.owner(mode);
        let metadata = &self.pod.metadata;
        let path = |path: &Option<String>| path.clone().unwrap_or_default();
        Ok(FileSource::Certificate(CertificateSource {
            key: CertificateKey {
                uid: metadata.uid.clone().unwrap_or_default().into(),
                namespace: self.namespace(),
                pod: metadata.name.clone().unwrap_or_default(),
                service_account: self.service_account(),
                volume: volume.to_owned(),
                index: u32::try_from(index).unwrap_or(u32::MAX),
                signer: source.signer_name.clone(),
                key_type: source.key_type.clone(),
                max_expiration_seconds: source.max_expiration_seconds.unwrap_or(0),
                annotations: source.user_annotations.clone().unwrap_or_default(),
            },
            bundle_path: path(&source.credential_bundle_path),
            key_path: path(&source.key_path),
            chain_path: path(&source.certificate_chain_path),
            mode,
            uid,
        }))
    }
}
