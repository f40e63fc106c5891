//! What a static pod may not refer to: whatever only an API server could give.

use k8s_openapi::api::core::v1::PodSpec;

use super::Findings;

const WHY: &str = "only the API server could give it to a static pod";

pub(super) fn check(out: &mut Findings, spec: &PodSpec) {
    for (field, account) in [
        ("serviceAccountName", &spec.service_account_name),
        ("serviceAccount", &spec.service_account),
    ] {
        if account.as_ref().is_some_and(|a| !a.is_empty()) {
            out.add(format!("spec.{field}"), format!("must not be set: {WHY}"));
        }
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        out.add("spec.resourceClaims", format!("must not be set: {WHY}"));
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
        for (name, _) in refused.iter().filter(|(_, there)| *there) {
            out.add(
                format!("spec.volumes[{i}].{name}"),
                format!("must not be used: {WHY}"),
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
            for (name, _) in refused.iter().filter(|(_, there)| *there) {
                out.add(
                    format!("spec.volumes[{i}].projected.sources[{j}].{name}"),
                    format!("must not be used: {WHY}"),
                );
            }
        }
    }
}
