//! The objects that a pod's manifest names and that pod-config reads for it. What those name in their
//! turn is in `volume_references`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, LocalObjectReference, Volume, VolumeProjection,
};
use serde::Deserialize;

use super::super::ObjectId;
use super::kinds::ApiKind;

pub(super) const CLAIM: &str = "PersistentVolumeClaim";
const CONFIG_MAP: &str = "ConfigMap";
pub(super) const CSI_DRIVER: &str = "CSIDriver";
pub(super) const SECRET: &str = "Secret";

/// Kind and name of an object.
pub(super) type KindAndName<'a> = (&'static str, &'a str);

/// The parts of a pod that name objects; all others are skipped, not decoded.
#[derive(Deserialize)]
struct ReferencingPod {
    metadata: ReferencingMetadata,
    spec: ReferencingSpec,
}

#[derive(Deserialize)]
struct ReferencingMetadata {
    #[serde(default)]
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReferencingSpec {
    init_containers: Option<Vec<ReferencingContainer>>,
    containers: Option<Vec<ReferencingContainer>>,
    ephemeral_containers: Option<Vec<ReferencingContainer>>,
    volumes: Option<Vec<Volume>>,
    image_pull_secrets: Option<Vec<LocalObjectReference>>,
    runtime_class_name: Option<String>,
    service_account_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReferencingContainer {
    env: Option<Vec<EnvVar>>,
    env_from: Option<Vec<EnvFromSource>>,
}

/// The objects that a published manifest names; none if it is no valid pod.
pub fn referenced_objects(manifest: &[u8]) -> BTreeSet<ObjectId> {
    let Ok(pod) = serde_json::from_slice::<ReferencingPod>(manifest) else {
        return BTreeSet::new();
    };
    let references = spec_references(&pod.spec);
    let named = references.into_iter().filter(|(_, name)| !name.is_empty());
    let claims = ephemeral_claims(&pod);
    let claims = claims.iter().map(|name| (CLAIM, name.as_str()));
    named
        .chain(claims)
        .map(|reference| object_id(reference, &pod.metadata.namespace))
        .collect()
}

/// The names of the claims that are created for the pod.
fn ephemeral_claims(pod: &ReferencingPod) -> Vec<String> {
    let volumes = pod.spec.volumes.iter().flatten();
    let ephemeral = volumes.filter(|volume| volume.ephemeral.is_some());
    ephemeral
        .map(|volume| format!("{}-{}", pod.metadata.name, volume.name))
        .collect()
}

pub(super) fn object_id((kind, name): KindAndName<'_>, namespace: &str) -> ObjectId {
    let namespaced = ApiKind::from_name(kind).is_some_and(|kind| kind.namespaced);
    ObjectId {
        kind: kind.to_owned(),
        namespace: if namespaced { namespace } else { "" }.to_owned(),
        name: name.to_owned(),
    }
}

fn spec_references(spec: &ReferencingSpec) -> Vec<KindAndName<'_>> {
    let containers = [
        &spec.init_containers,
        &spec.containers,
        &spec.ephemeral_containers,
    ];
    let containers = containers.into_iter().flatten().flatten();
    let volumes = spec.volumes.iter().flatten();
    let pull_secrets = spec.image_pull_secrets.iter().flatten();
    let runtime_class = spec.runtime_class_name.as_deref();
    let account = spec.service_account_name.as_deref();
    containers
        .flat_map(container_references)
        .chain(volumes.flat_map(volume_references))
        .chain(pull_secrets.map(|secret| (SECRET, secret.name.as_str())))
        .chain(runtime_class.map(|name| ("RuntimeClass", name)))
        .chain(account.map(|name| ("ServiceAccount", name)))
        .collect()
}

fn container_references(container: &ReferencingContainer) -> impl Iterator<Item = KindAndName<'_>> {
    let sources = container.env_from.iter().flatten();
    let variables = container.env.iter().flatten();
    let values = variables.filter_map(|variable| variable.value_from.as_ref());
    let of_sources = sources.flat_map(env_from_references);
    of_sources.chain(values.flat_map(env_references))
}

fn env_from_references(source: &EnvFromSource) -> impl Iterator<Item = KindAndName<'_>> {
    let map = source.config_map_ref.as_ref();
    let secret = source.secret_ref.as_ref();
    let map = map.map(|map| (CONFIG_MAP, map.name.as_str()));
    let secret = secret.map(|secret| (SECRET, secret.name.as_str()));
    map.into_iter().chain(secret)
}

fn env_references(source: &EnvVarSource) -> impl Iterator<Item = KindAndName<'_>> {
    let map = source.config_map_key_ref.as_ref();
    let secret = source.secret_key_ref.as_ref();
    let map = map.map(|map| (CONFIG_MAP, map.name.as_str()));
    let secret = secret.map(|secret| (SECRET, secret.name.as_str()));
    map.into_iter().chain(secret)
}

fn volume_references(volume: &Volume) -> Vec<KindAndName<'_>> {
    let map = volume.config_map.as_ref();
    let secret = volume.secret.as_ref();
    let secret = secret.and_then(|secret| secret.secret_name.as_deref());
    let driver = volume.csi.as_ref();
    let publish_secret = driver.and_then(|driver| driver.node_publish_secret_ref.as_ref());
    // Of a former in-tree plugin: its CSI driver gets the Secret.
    let share = volume.azure_file.as_ref();
    let claim = volume.persistent_volume_claim.as_ref();
    let projected = volume.projected.as_ref();
    let sources = projected.and_then(|projected| projected.sources.as_ref());
    map.map(|map| (CONFIG_MAP, map.name.as_str()))
        .into_iter()
        .chain(secret.map(|name| (SECRET, name)))
        .chain(claim.map(|claim| (CLAIM, claim.claim_name.as_str())))
        .chain(driver.map(|driver| (CSI_DRIVER, driver.driver.as_str())))
        .chain(publish_secret.map(|secret| (SECRET, secret.name.as_str())))
        .chain(share.map(|share| (SECRET, share.secret_name.as_str())))
        .chain(sources.into_iter().flatten().flat_map(projected_references))
        .collect()
}

fn projected_references(source: &VolumeProjection) -> impl Iterator<Item = KindAndName<'_>> {
    let map = source.config_map.as_ref();
    let secret = source.secret.as_ref();
    let bundle = source.cluster_trust_bundle.as_ref();
    let one = bundle.and_then(|bundle| bundle.name.as_deref());
    let signer = bundle.and_then(|bundle| bundle.signer_name.as_deref());
    map.map(|map| (CONFIG_MAP, map.name.as_str()))
        .into_iter()
        .chain(secret.map(|secret| (SECRET, secret.name.as_str())))
        .chain(one.map(|name| ("ClusterTrustBundle", name)))
        .chain(signer.map(|name| ("ClusterTrustBundleList", name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The objects of a spec as `kind namespace/name`.
    fn named(spec: Value) -> Vec<String> {
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p" }, "spec": spec });
        let objects = referenced_objects(pod.to_string().as_bytes()).into_iter();
        objects
            .map(|id| format!("{} {}/{}", id.kind, id.namespace, id.name))
            .collect()
    }

    #[test]
    fn each_kind_of_reference_is_found() {
        let container = |name: &str| {
            json!([{
                "name": "c",
                "env": [
                    { "name": "A", "value": "v" },
                    { "name": "B", "valueFrom": { "configMapKeyRef": { "name": format!("{name}-key"), "key": "k" } } },
                    { "name": "C", "valueFrom": { "secretKeyRef": { "name": format!("{name}-key"), "key": "k" } } },
                    { "name": "D", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                ],
                "envFrom": [
                    { "configMapRef": { "name": name } },
                    { "prefix": "P_", "secretRef": { "name": name, "optional": true } },
                ],
            }])
        };
        let of_container = [
            "ConfigMap ns/x",
            "ConfigMap ns/x-key",
            "Secret ns/x",
            "Secret ns/x-key",
        ];
        let volume = |source: Value| {
            let mut volume = source;
            volume["name"] = "v".into();
            json!({ "volumes": [volume] })
        };
        let projected = json!({ "projected": { "sources": [
            { "configMap": { "name": "m" } },
            { "secret": { "name": "s" } },
            { "clusterTrustBundle": { "name": "b", "path": "p" } },
            { "clusterTrustBundle": { "signerName": "example.com/signer", "path": "q" } },
            { "serviceAccountToken": { "path": "t" } },
        ] } });
        for (spec, expected) in [
            (
                json!({ "initContainers": container("x") }),
                &of_container[..],
            ),
            (json!({ "containers": container("x") }), &of_container),
            (
                json!({ "ephemeralContainers": container("x") }),
                &of_container,
            ),
            (
                volume(json!({ "configMap": { "name": "m" } })),
                &["ConfigMap ns/m"],
            ),
            (
                volume(json!({ "secret": { "secretName": "s" } })),
                &["Secret ns/s"],
            ),
            (
                volume(projected),
                &[
                    "ClusterTrustBundle /b",
                    "ClusterTrustBundleList /example.com/signer",
                    "ConfigMap ns/m",
                    "Secret ns/s",
                ],
            ),
            (
                volume(
                    json!({ "csi": { "driver": "d", "nodePublishSecretRef": { "name": "s" } } }),
                ),
                &["CSIDriver /d", "Secret ns/s"],
            ),
            (
                volume(json!({ "persistentVolumeClaim": { "claimName": "data" } })),
                &["PersistentVolumeClaim ns/data"],
            ),
            (
                volume(json!({ "ephemeral": {} })),
                &["PersistentVolumeClaim ns/p-v"],
            ),
            (
                volume(json!({ "azureFile": { "secretName": "s", "shareName": "x" } })),
                &["Secret ns/s"],
            ),
            (
                json!({ "imagePullSecrets": [{ "name": "pull" }, { "name": "" }, {}] }),
                &["Secret ns/pull"],
            ),
            (
                json!({ "runtimeClassName": "kata" }),
                &["RuntimeClass /kata"],
            ),
            (
                json!({ "serviceAccountName": "robot" }),
                &["ServiceAccount ns/robot"],
            ),
            (volume(json!({ "emptyDir": {} })), &[]),
            (
                json!({ "containers": null, "volumes": null, "runtimeClassName": null }),
                &[],
            ),
        ] {
            assert_eq!(named(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn invalid_manifests_name_nothing() {
        for text in [
            "",
            "{}",
            r#"{"metadata":{"namespace":"ns"},"spec":{"volumes":5}}"#,
        ] {
            assert!(referenced_objects(text.as_bytes()).is_empty(), "{text}");
        }
    }
}
