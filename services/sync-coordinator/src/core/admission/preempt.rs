//! Which pods make room for a critical one.

use std::cmp::Ordering;
use std::fmt::Write as _;

use polylet_model::qos::QosClass;

use super::fit::Shortage;
use crate::core::room::{Demand, Ledger};

type Candidate<'a> = (&'a str, &'a Demand);

/// Chooses the pods that have to end: as few as can be, BestEffort before Burstable
/// before Guaranteed, and none where those that end anyhow suffice. An error when
/// all of them together would not do.
pub(super) fn victims(
    for_whom: &Demand,
    ledger: &Ledger,
    shortages: &[Shortage],
) -> Result<Vec<String>, String> {
    let ending = ledger
        .holders()
        .filter(|(_, holder)| holder.ending)
        .map(|(uid, holder)| (uid, holder.demand.as_ref()));
    let missing = without(shortages, ending);
    let classes = [
        QosClass::BestEffort,
        QosClass::Burstable,
        QosClass::Guaranteed,
    ];
    let [best_effort, burstable, guaranteed] = classes.map(|class| {
        let of_class = ledger.holders().filter(|(_, holder)| {
            !holder.ending && holder.demand.qos == class && for_whom.may_preempt(&holder.demand)
        });
        of_class
            .map(|(uid, holder)| (uid, holder.demand.as_ref()))
            .collect::<Vec<Candidate<'_>>>()
    });
    let all = [&best_effort, &burstable, &guaranteed];
    let beyond = without(&missing, all.into_iter().flatten().copied());
    if !beyond.is_empty() {
        return Err(none_found(&beyond));
    }
    // Of each class what the others leave open: of the better classes as little as possible.
    let lower = best_effort.iter().chain(&burstable).copied();
    let guaranteed = nearest(guaranteed, without(&missing, lower))?;
    let others = best_effort.iter().chain(&guaranteed).copied();
    let burstable = nearest(burstable, without(&missing, others))?;
    let others = burstable.iter().chain(&guaranteed).copied();
    let best_effort = nearest(best_effort, without(&missing, others))?;
    Ok([best_effort, burstable, guaranteed]
        .into_iter()
        .flatten()
        .map(|(uid, _)| uid.to_owned())
        .collect())
}

/// What is still missing once these pods are gone.
fn without<'a>(shortages: &[Shortage], gone: impl Iterator<Item = Candidate<'a>>) -> Vec<Shortage> {
    let gone: Vec<_> = gone.collect();
    let left = |(name, missing): &Shortage| {
        let freed = gone.iter().map(|(_, demand)| demand.of_resource(name));
        let left = freed.fold(*missing, i64::saturating_sub);
        (left > 0).then(|| (name.clone(), left))
    };
    shortages.iter().filter_map(left).collect()
}

/// Takes pods one by one, each time the one that comes nearest to what is missing.
fn nearest<'a>(
    mut from: Vec<Candidate<'a>>,
    mut missing: Vec<Shortage>,
) -> Result<Vec<Candidate<'a>>, String> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let ranked = |a: &&Candidate<'_>, b: &&Candidate<'_>| {
            distance(&missing, a.1)
                .total_cmp(&distance(&missing, b.1))
                .then_with(|| smaller(a.1, b.1))
        };
        let Some(best) = from.iter().min_by(ranked).copied() else {
            return Err(none_found(&missing));
        };
        from.retain(|candidate| candidate.0 != best.0);
        missing = without(&missing, std::iter::once(best));
        chosen.push(best);
    }
    Ok(chosen)
}

/// How far a pod is from freeing all that is missing; each resource weighs the same.
fn distance(missing: &[Shortage], demand: &Demand) -> f64 {
    missing
        .iter()
        .map(|(name, missing)| {
            let left = missing.saturating_sub(demand.of_resource(name)).max(0);
            (left as f64 / *missing as f64).powi(2)
        })
        .sum()
}

fn smaller(a: &Demand, b: &Demand) -> Ordering {
    let by = |name| a.of_resource(name).cmp(&b.of_resource(name));
    by("memory").then_with(|| by("cpu"))
}

fn none_found(missing: &[Shortage]) -> String {
    let mut list = String::new();
    for (name, missing) in missing {
        // Writing into a String cannot fail.
        let _ = write!(list, "(res: {name}, q: {missing}), ");
    }
    format!(
        "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [{list}]"
    )
}
