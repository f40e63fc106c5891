//! References that static pods cannot have, because they need the API server.

use k8s_openapi::api::core::v1::PodSpec;

use super::ErrorList;

const NEEDS_API_SERVER: &str = "it needs the API server, which static pods cannot use";

pub(super) fn check(errors: &mut ErrorList, spec: &PodSpec) {
    for (field, account) in [
        ("serviceAccountName", &spec.service_account_name),
        ("serviceAccount", &spec.service_account),
    ] {
        if account.as_ref().is_some_and(|a| !a.is_empty()) {
            errors.add(
                format!("spec.{field}"),
                format!("must not be set: {NEEDS_API_SERVER}"),
            );
        }
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        errors.add(
            "spec.resourceClaims",
            format!("must not be set: {NEEDS_API_SERVER}"),
        );
    }
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let refused = [
            (
                "persistentVolumeClaim",
                volume.persistent_volume_claim.is_some(),
            ),
            ("csi", volume.csi.is_some()),
            ("ephemeral", volume.ephemeral.is_some()),
            ("azureFile", volume.azure_file.is_some()),
            ("glusterfs", volume.glusterfs.is_some()),
        ];
        for (name, _) in refused.iter().filter(|(_, is_set)| *is_set) {
            errors.add(
                format!("spec.volumes[{i}].{name}"),
                format!("must not be used: {NEEDS_API_SERVER}"),
            );
        }
        let sources = volume
            .projected
            .iter()
            .flat_map(|p| p.sources.iter().flatten());
        for (j, source) in sources.enumerate() {
            let refused = [
                (
                    "serviceAccountToken",
                    source.service_account_token.is_some(),
                ),
                ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
                ("podCertificate", source.pod_certificate.is_some()),
            ];
            for (name, _) in refused.iter().filter(|(_, is_set)| *is_set) {
                errors.add(
                    format!("spec.volumes[{i}].projected.sources[{j}].{name}"),
                    format!("must not be used: {NEEDS_API_SERVER}"),
                );
            }
        }
    }
}
