//! Feature gates: which there are, which may be set, and what they mean to this node. A node starts
//! with the gates that a kubelet of the same version starts with, and refuses the others in the
//! kubelet's words.

mod known;

use std::collections::BTreeMap;

use super::KubeletConfiguration;
use super::problems::Problems;
use known::{KNOWN, NEEDS};

/// Name, on by itself, stage, whether it can be changed, what it means here.
type Gate = (&'static str, bool, Stage, Locked, Means);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Locked {
    Locked,
    Free,
}

/// What a gate changes on this node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// What it changes on a node of upstream.
    Heeded,
    /// Nothing: this node always does what the gate stands for.
    Always,
    /// Nothing: this node does not do what the gate stands for.
    Never,
    /// Nothing, nor would it change what anybody sees of another node.
    Elsewhere,
}

const ALL: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// What is set.
type Set = BTreeMap<String, bool>;

/// Gates that a kubelet would not start with.
pub(super) fn check(config: &KubeletConfiguration, problems: &mut Problems) {
    let set = &config.feature_gates;
    let mut wrong = |message: String| problems.add("featureGates", message);
    let mut good = true;
    for (name, value) in set.iter().filter(|(name, _)| of_all(name).is_none()) {
        let Some((_, standard, _, locked, _)) = find(name) else {
            wrong(format!("unrecognized feature gate: {name}"));
            good = false;
            continue;
        };
        if *locked == Locked::Locked && value != standard {
            wrong(format!(
                "cannot set feature gate {name} to {value}, feature is locked to {standard}"
            ));
            good = false;
        }
    }
    for (name, needs) in NEEDS.iter().filter(|(name, _)| good && is_on(set, name)) {
        let off = needs.iter().filter(|need| !is_on(set, need));
        let off: Vec<&str> = off.copied().collect();
        if !off.is_empty() {
            let off = off.join(" ");
            wrong(format!(
                "{name} is enabled, but depends on features that are disabled: [{off}]"
            ));
        }
    }
}

/// Fields that may not be set while their gate is off. `given` tells which ones the document names.
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

/// What people are told of gates that are set: which will go, and which count for nothing here.
pub(super) fn warnings(set: &Set) -> Vec<String> {
    let mut told = Vec::new();
    for (name, value) in set {
        let Some((_, _, stage, _, means)) = find(name) else {
            continue;
        };
        let going = match stage {
            Stage::Stable => "GA",
            Stage::Deprecated => "deprecated",
            Stage::Alpha | Stage::Beta => "",
        };
        if !going.is_empty() {
            told.push(format!(
                "setting {going} feature gate {name}={value}. It will be removed in a future release."
            ));
        }
        let instead = match (means, value) {
            (Means::Always, false) => "what it stands for is always done here",
            (Means::Never, true) => "what it stands for is not done here",
            _ => continue,
        };
        told.push(format!(
            "feature gate {name}={value} counts for nothing: {instead}"
        ));
    }
    told
}

/// Gates that count here and are set by `AllAlpha` and `AllBeta` alone, one by one.
pub(super) fn spread(set: &mut Set) {
    let heeded = KNOWN.iter().filter(|gate| gate.4 == Means::Heeded);
    let spread: Vec<(String, bool)> = heeded
        .filter_map(|gate| Some((gate.0.to_owned(), by_stage(set, gate)?)))
        .collect();
    for (name, value) in spread {
        set.entry(name).or_insert(value);
    }
}

fn is_on(set: &Set, name: &str) -> bool {
    let standard = |gate: &Gate| by_stage(set, gate).unwrap_or(gate.1);
    let own = set.get(name).copied();
    own.unwrap_or_else(|| find(name).is_some_and(standard))
}

/// What `AllAlpha` or `AllBeta` says of a gate.
fn by_stage(set: &Set, gate: &Gate) -> Option<bool> {
    let (all, _) = ALL.iter().find(|(_, stage)| *stage == gate.2)?;
    set.get(*all).copied()
}

fn of_all(name: &str) -> Option<Stage> {
    let all = ALL.iter().find(|(all, _)| *all == name);
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

    fn told(gates: &[(&str, bool)]) -> Vec<String> {
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
    fn gates_as_a_kubelet_takes_them() {
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
            assert_eq!(told(gates), expected, "{gates:?}");
        }
    }

    #[test]
    fn what_counts_for_nothing_is_said() {
        for (gate, on, expected) in [
            ("MemoryQoS", true, ""),
            ("HPAScaleToZero", true, ""),
            ("EnvFiles", true, ""),
            ("EnvFiles", false, "always done here"),
            ("ClusterTrustBundleProjection", true, ""),
            ("EventedPLEG", true, ""),
            ("GracefulNodeShutdown", false, ""),
            ("GracefulNodeShutdown", true, "not done here"),
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
            let told = warnings(&set(&[(gate, on)])).join("\n");
            assert_eq!(told.is_empty(), expected.is_empty(), "{gate}: {told}");
            assert!(told.contains(expected), "{gate}: {told}");
        }
    }

    #[test]
    fn all_of_a_stage_are_set_at_once_and_one_by_one_counts_before() {
        let mut gates = set(&[
            ("AllAlpha", true),
            ("QOSReserved", false),
            ("AllBeta", false),
        ]);
        spread(&mut gates);
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
        spread(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn the_list_is_in_order_and_holds_together() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        let known = |name: &&str| find(name).is_some();
        assert!(
            NEEDS
                .iter()
                .all(|(name, needs)| known(name) && needs.iter().all(known))
        );
        assert!(KNOWN.iter().all(|gate| gate.2 != Stage::Alpha || !gate.1));
    }
}
