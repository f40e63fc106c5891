//! Feature gates: the known ones, whether they may be set, and their effect on this node. A node
//! accepts the gates that a kubelet of the same version accepts, and rejects others with the
//! kubelet's messages.

mod known;

use std::collections::BTreeMap;

use super::KubeletConfiguration;
use super::problems::Problems;
use known::{DEPENDENCIES, KNOWN};

/// Name, default, stage, whether it is locked to the default, effect on this node.
type Gate = (&'static str, bool, Stage, LockedGate, GateEffect);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LockedGate {
    Locked,
    Free,
}

/// Effect of a gate on this node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateEffect {
    /// The same as in the kubelet.
    Implemented,
    /// None: the feature is always on here.
    AlwaysOn,
    /// None: the feature is not implemented here.
    NotImplemented,
    /// None, as in the kubelet: the gate is for other components, or has no visible effect.
    Unrelated,
}

const GROUPS: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// The configured gates.
type Set = BTreeMap<String, bool>;

/// Rejects gates with which a kubelet does not start.
pub(super) fn check(config: &KubeletConfiguration, problems: &mut Problems) {
    let set = &config.feature_gates;
    let mut error = |message: String| problems.add("featureGates", message);
    let mut valid = true;
    for (name, value) in set
        .iter()
        .filter(|(name, _)| stage_of_group(name).is_none())
    {
        let Some((_, standard, _, locked, _)) = find(name) else {
            error(format!("unrecognized feature gate: {name}"));
            valid = false;
            continue;
        };
        if *locked == LockedGate::Locked && value != standard {
            error(format!(
                "cannot set feature gate {name} to {value}, feature is locked to {standard}"
            ));
            valid = false;
        }
    }
    for (name, needs) in DEPENDENCIES
        .iter()
        .filter(|(name, _)| valid && is_on(set, name))
    {
        let off = needs.iter().filter(|need| !is_on(set, need));
        let off: Vec<&str> = off.copied().collect();
        if !off.is_empty() {
            let off = off.join(" ");
            error(format!(
                "{name} is enabled, but depends on features that are disabled: [{off}]"
            ));
        }
    }
}

/// Rejects fields whose gate is off. `given` returns whether the document has a field.
pub(super) fn fields(
    config: &KubeletConfiguration,
    given: impl Fn(&str) -> bool,
    problems: &mut Problems,
) {
    let shuts_down = !config.shutdown_grace_period.is_zero()
        || !config.shutdown_grace_period_critical_pods.is_zero();
    let standard = KubeletConfiguration::default();
    let restarts = config.crash_loop_back_off.max_container_restart_period;
    let verified = "KubeletEnsureSecretPulledImages";
    let policy = "imagePullCredentialsVerificationPolicy";
    let allowed = "preloadedImagesVerificationAllowlist";
    for (field, named, gate) in [
        (
            "serverTLSBootstrap",
            config.server_tls_bootstrap,
            "RotateKubeletServerCertificate",
        ),
        (
            "cpuCFSQuotaPeriod",
            config.cpu_cfs_quota_period != standard.cpu_cfs_quota_period,
            "CustomCPUCFSQuotaPeriod",
        ),
        ("shutdownGracePeriod", shuts_down, "GracefulNodeShutdown"),
        (
            "shutdownGracePeriodByPodPriority",
            !config.shutdown_grace_period_by_pod_priority.is_empty(),
            "GracefulNodeShutdownBasedOnPodPriority",
        ),
        (
            "crashLoopBackOff.maxContainerRestartPeriod",
            restarts.is_some(),
            "KubeletCrashLoopBackOffMax",
        ),
        (policy, given(policy), verified),
        (allowed, given(allowed), verified),
    ] {
        if named && !is_on(&config.feature_gates, gate) {
            problems.add(field, format!("requires feature gate {gate}"));
        }
    }
}

/// Warnings about gates that will be removed, or have no effect here.
pub(super) fn warnings(set: &Set) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, value) in set {
        let Some((_, _, stage, _, means)) = find(name) else {
            continue;
        };
        let removal = match stage {
            Stage::Stable => "GA",
            Stage::Deprecated => "deprecated",
            Stage::Alpha | Stage::Beta => "",
        };
        if !removal.is_empty() {
            warnings.push(format!(
                "setting {removal} feature gate {name}={value}. It will be removed in a future release."
            ));
        }
        let effect = match (means, value) {
            (GateEffect::AlwaysOn, false) => "the feature is always on",
            (GateEffect::NotImplemented, true) => "the feature is not implemented",
            _ => continue,
        };
        warnings.push(format!(
            "feature gate {name}={value} has no effect: {effect}"
        ));
    }
    warnings
}

/// Sets the implemented gates that only `AllAlpha` or `AllBeta` sets.
pub(super) fn apply_all_alpha_beta(set: &mut Set) {
    let implemented = KNOWN
        .iter()
        .filter(|gate| gate.4 == GateEffect::Implemented);
    let values: Vec<(String, bool)> = implemented
        .filter_map(|gate| Some((gate.0.to_owned(), group_value(set, gate)?)))
        .collect();
    for (name, value) in values {
        set.entry(name).or_insert(value);
    }
}

fn is_on(set: &Set, name: &str) -> bool {
    let standard = |gate: &Gate| group_value(set, gate).unwrap_or(gate.1);
    let own = set.get(name).copied();
    own.unwrap_or_else(|| find(name).is_some_and(standard))
}

/// Value of a gate by `AllAlpha` or `AllBeta`.
fn group_value(set: &Set, gate: &Gate) -> Option<bool> {
    let (all, _) = GROUPS.iter().find(|(_, stage)| *stage == gate.2)?;
    set.get(*all).copied()
}

fn stage_of_group(name: &str) -> Option<Stage> {
    let all = GROUPS.iter().find(|(all, _)| *all == name);
    all.map(|(_, stage)| *stage)
}

fn find(name: &str) -> Option<&'static Gate> {
    let at = KNOWN.binary_search_by(|gate| gate.0.cmp(name)).ok()?;
    KNOWN.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(gates: &[(&str, bool)]) -> Set {
        let named = gates.iter().map(|(name, on)| ((*name).to_owned(), *on));
        named.collect()
    }

    fn errors(gates: &[(&str, bool)]) -> Vec<String> {
        let mut problems = Problems::new("f".as_ref());
        let config = KubeletConfiguration {
            feature_gates: set(gates),
            ..Default::default()
        };
        check(&config, &mut problems);
        let found = problems.found.into_iter();
        found.map(|problem| problem.message).collect()
    }

    #[test]
    fn accepts_the_gates_that_a_kubelet_accepts() {
        let nothing: &[&str] = &[];
        for (gates, expected) in [
            (&[][..], nothing),
            (&[("MemoryQoS", true)], nothing),
            (&[("ImageVolume", true)], nothing),
            (&[("AllAlpha", true), ("AllBeta", true)], nothing),
            (&[("AllAlpha", false)], nothing),
            (
                &[("memoryqos", true)],
                &["unrecognized feature gate: memoryqos"],
            ),
            (
                &[("CSIMigration", true)],
                &["unrecognized feature gate: CSIMigration"],
            ),
            (
                &[("ImageVolume", false)],
                &["cannot set feature gate ImageVolume to false, feature is locked to true"],
            ),
            (
                &[("GitRepoVolumeDriver", true)],
                &[
                    "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
                ],
            ),
            (
                &[
                    ("PodLevelResources", false),
                    ("InPlacePodLevelResourcesVerticalScaling", true),
                ],
                &[
                    "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that \
                   are disabled: [PodLevelResources]",
                ],
            ),
            (&[("AllBeta", false), ("ProcMountType", true)], nothing),
            (
                &[("GangScheduling", true)],
                &[
                    "GangScheduling is enabled, but depends on features that are disabled: \
                   [GenericWorkload]",
                ],
            ),
        ] {
            assert_eq!(errors(gates), expected, "{gates:?}");
        }
    }

    #[test]
    fn gates_without_effect_are_warnings() {
        for (gate, on, expected) in [
            ("MemoryQoS", true, ""),
            ("HPAScaleToZero", true, ""),
            ("EnvFiles", true, ""),
            ("EnvFiles", false, "always on"),
            ("ClusterTrustBundleProjection", true, ""),
            ("EventedPLEG", true, ""),
            ("GracefulNodeShutdown", false, ""),
            ("GracefulNodeShutdown", true, "not implemented"),
            (
                "KubeletPodResourcesListUseActivePods",
                true,
                "not implemented",
            ),
            ("AllowDNSOnlyNodeCSR", true, "not implemented"),
            (
                "ImageVolume",
                true,
                "setting GA feature gate ImageVolume=true. It will",
            ),
            (
                "ChangeContainerStatusOnKubeletRestart",
                false,
                "setting deprecated feature gate",
            ),
        ] {
            let text = warnings(&set(&[(gate, on)])).join("\n");
            assert_eq!(text.is_empty(), expected.is_empty(), "{gate}: {text}");
            assert!(text.contains(expected), "{gate}: {text}");
        }
        let text = warnings(&set(&[("KubeletPSI", true)])).join("\n");
        assert!(!text.contains("not implemented"), "{text}");
    }

    #[test]
    fn single_gates_override_groups() {
        let mut gates = set(&[
            ("AllAlpha", true),
            ("QOSReserved", false),
            ("AllBeta", false),
        ]);
        apply_all_alpha_beta(&mut gates);
        for (name, expected) in [
            ("MemoryQoS", Some(true)),
            ("QOSReserved", Some(false)),
            ("PodLevelResources", Some(false)),
            ("EnvFiles", None),
            ("UserNamespacesSupport", None),
        ] {
            assert_eq!(gates.get(name).copied(), expected, "{name}");
        }
        let mut none = Set::new();
        apply_all_alpha_beta(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn the_table_is_sorted_and_consistent() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        let known = |name: &&str| find(name).is_some();
        assert!(
            DEPENDENCIES
                .iter()
                .all(|(name, needs)| known(name) && needs.iter().all(known))
        );
        assert!(KNOWN.iter().all(|gate| gate.2 != Stage::Alpha || !gate.1));
    }
}
