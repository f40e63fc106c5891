//! Preemption: which pods are terminated to admit a critical one.

use std::cmp::Ordering;
use std::fmt::Write as _;

use polylet_model::qos::QosClass;

use crate::core::admission::predicates::Shortage;
use crate::core::node_resources::{AllocatedPods, PodRequest};

type PreemptionCandidate<'a> = (&'a str, &'a PodRequest);

/// Selects the pods to preempt for the pod with this uid: as few as possible, BestEffort before
/// Burstable before Guaranteed, and none where terminating pods suffice.
///
/// # Errors
/// When all candidates together do not free enough.
pub(super) fn select_victims(
    preemptor_uid: &str,
    preemptor: &PodRequest,
    allocated: &AllocatedPods,
    shortages: &[Shortage],
) -> Result<Vec<String>, String> {
    // A pod that is resized has resources already.
    let others = || allocated.pods().filter(|(uid, _)| *uid != preemptor_uid);
    let terminating_pods = others()
        .filter(|(_, pod)| pod.terminating)
        .map(|(uid, pod)| (uid, pod.request.as_ref()));
    let missing = without(shortages, terminating_pods);
    let classes = [
        QosClass::BestEffort,
        QosClass::Burstable,
        QosClass::Guaranteed,
    ];
    let [best_effort, burstable, guaranteed] = classes.map(|class| {
        let of_class = others().filter(|(_, pod)| {
            !pod.terminating && pod.request.qos == class && preemptor.may_preempt(&pod.request)
        });
        of_class
            .map(|(uid, pod)| (uid, pod.request.as_ref()))
            .collect::<Vec<PreemptionCandidate<'_>>>()
    });
    let all = [&best_effort, &burstable, &guaranteed];
    let uncovered = without(&missing, all.into_iter().flatten().copied());
    if !uncovered.is_empty() {
        return Err(no_victims(&uncovered));
    }
    // Each class covers what the other two leave open, so that higher classes lose as little as possible.
    let lower = best_effort.iter().chain(&burstable).copied();
    let guaranteed = select_closest(guaranteed, without(&missing, lower))?;
    let others = best_effort.iter().chain(&guaranteed).copied();
    let burstable = select_closest(burstable, without(&missing, others))?;
    let others = burstable.iter().chain(&guaranteed).copied();
    let best_effort = select_closest(best_effort, without(&missing, others))?;
    Ok([best_effort, burstable, guaranteed]
        .into_iter()
        .flatten()
        .map(|(uid, _)| uid.to_owned())
        .collect())
}

/// The shortages that remain without these pods.
fn without<'a>(
    shortages: &[Shortage],
    removed: impl Iterator<Item = PreemptionCandidate<'a>>,
) -> Vec<Shortage> {
    let removed: Vec<_> = removed.collect();
    let left = |(name, missing): &Shortage| {
        let freed = removed.iter().map(|(_, request)| request.requested(name));
        let left = freed.fold(*missing, i64::saturating_sub);
        (left > 0).then(|| (name.clone(), left))
    };
    shortages.iter().filter_map(left).collect()
}

/// Selects pods one by one, each time the one closest to the missing amounts.
fn select_closest<'a>(
    mut from: Vec<PreemptionCandidate<'a>>,
    mut missing: Vec<Shortage>,
) -> Result<Vec<PreemptionCandidate<'a>>, String> {
    let mut selected = Vec::new();
    while !missing.is_empty() {
        let ranked = |a: &&PreemptionCandidate<'_>, b: &&PreemptionCandidate<'_>| {
            distance(&missing, a.1)
                .total_cmp(&distance(&missing, b.1))
                .then_with(|| by_size(a.1, b.1))
        };
        let Some(best) = from.iter().min_by(ranked).copied() else {
            return Err(no_victims(&missing));
        };
        from.retain(|candidate| candidate.0 != best.0);
        missing = without(&missing, std::iter::once(best));
        selected.push(best);
    }
    Ok(selected)
}

/// Distance of a pod from the missing amounts, with equal weight per resource.
fn distance(missing: &[Shortage], request: &PodRequest) -> f64 {
    missing
        .iter()
        .map(|(name, missing)| {
            let left = missing.saturating_sub(request.requested(name)).max(0);
            (left as f64 / *missing as f64).powi(2)
        })
        .sum()
}

fn by_size(a: &PodRequest, b: &PodRequest) -> Ordering {
    let by = |name| a.requested(name).cmp(&b.requested(name));
    by("memory").then_with(|| by("cpu"))
}

fn no_victims(missing: &[Shortage]) -> String {
    let mut list = String::new();
    for (name, missing) in missing {
        // Writing into a String cannot fail.
        let _ = write!(list, "(res: {name}, q: {missing}), ");
    }
    format!(
        "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [{list}]"
    )
}
