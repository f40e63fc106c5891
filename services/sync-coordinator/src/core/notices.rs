//! What people are told of decisions as events, in upstream's words. Acts tell of themselves
//! (`act/notices.rs`).
//!
//! A plan is compared with the one before it: what stands already is not told again.

use jiff::Timestamp;
use polylet_model::constants::{REFUSED, condition_reason, reason};
use polylet_model::{ContainerKind, Manifest};
use serde::Serialize;

use super::admission;
use super::observed::{self, SeenContainer};
use super::plan::{Note, OVERDUE, Phase, Plan, UNTOLD, Waiting};
use super::reset;
use super::resize::{self, Verdict};
use super::step::{Step, StepKey};
use super::view::{Terminal, View};
use super::wanted::Wanted;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The part of the pod (`spec.containers{web}`); empty for the whole.
    pub part: String,
    /// Something is amiss.
    pub warning: bool,
    /// The event's reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl Notice {
    fn of_pod(warning: bool, reason: &str, message: impl Into<String>) -> Self {
        Notice {
            part: String::new(),
            warning,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Where a container stands in its pod.
pub fn part(manifest: &Manifest, container: &str) -> String {
    let list = match manifest.container(container).map(|(kind, _)| kind) {
        Some(ContainerKind::Init | ContainerKind::Sidecar) => "spec.initContainers",
        Some(ContainerKind::Ephemeral) => "spec.ephemeralContainers",
        Some(ContainerKind::Regular) => "spec.containers",
        None => return format!("implicitly required container {container}"),
    };
    format!("{list}{{{container}}}")
}

/// What is news in a plan of a process that lives since `born`.
pub fn of(view: &View<'_>, before: &Plan, plan: &Plan, born: Timestamp) -> Vec<Notice> {
    let mut told = Vec::new();
    let Some(wanted) = view.pod.wanted.as_deref() else {
        return told;
    };
    endings(view, plan, &mut told);
    killings(view, wanted, plan, &mut told);
    delays(before, plan, born, &mut told);
    if plan.phase == Phase::Syncing {
        let news = Plan {
            notes: plan
                .notes
                .iter()
                .filter(|n| is_news(view, n, born))
                .cloned()
                .collect(),
            ..Plan::default()
        };
        back_offs(view, wanted, before, &news, &mut told);
        sandbox(view, plan, &mut told);
        network(view, before, plan, &mut told);
        resizes(view, wanted, before, plan, &mut told);
    }
    told
}

/// Decisions that the pod never runs again.
fn endings(view: &View<'_>, plan: &Plan, told: &mut Vec<Notice>) {
    let tried = view.pod.failures.contains_key(&StepKey::Journal);
    let mut steps = plan.steps.iter().filter(|_| !tried);
    let decided = steps.find_map(|step| match step {
        Step::Decide(terminal) if !terminal.reason.is_empty() => Some(terminal),
        _ => None,
    });
    let Some(Terminal {
        reason, message, ..
    }) = decided
    else {
        return;
    };
    let normal = reason == reason::DEADLINE_EXCEEDED;
    let message = message.strip_prefix(REFUSED);
    let message = message.or(decided.map(|t| t.message.as_str()));
    told.push(Notice::of_pod(!normal, reason, message.unwrap_or_default()));
}

/// What the runtime does not tell, and what it does not do in time.
fn delays(before: &Plan, plan: &Plan, born: Timestamp, told: &mut Vec<Notice>) {
    let stands = |of: &Waiting| {
        let same = |old: &Waiting| old.what == of.what && old.error == of.error;
        before.waiting.iter().any(same)
    };
    for waiting in plan.waiting.iter().filter(|waiting| !stands(waiting)) {
        if waiting.what == UNTOLD {
            let message = format!("error determining status: {}", waiting.error);
            told.push(Notice::of_pod(true, "FailedSync", message));
        }
        // A former life has told of what was late in its time.
        if waiting.what == OVERDUE && waiting.since >= Some(born) {
            let message = "Container runtime did not kill the pod within specified grace period.";
            told.push(Notice::of_pod(true, "ExceededGracePeriod", message));
        }
    }
}

/// Stops that begin now.
fn killings(view: &View<'_>, wanted: &Wanted, plan: &Plan, told: &mut Vec<Notice>) {
    for (id, _) in &plan.stops {
        let Some(seen) = view.observed().container(id) else {
            continue;
        };
        if view.pod.lifecycle.stops.contains_key(id) {
            continue;
        }
        let why = (plan.phase == Phase::Syncing).then(|| why(view, wanted, seen));
        let message = why.flatten();
        told.push(Notice {
            part: part(&wanted.manifest, &seen.name),
            warning: false,
            reason: "Killing".to_owned(),
            message: message.unwrap_or_else(|| format!("Stopping container {}", seen.name)),
        });
    }
}

/// Why a container of a pod that goes on is stopped.
fn why(view: &View<'_>, wanted: &Wanted, seen: &SeenContainer) -> Option<String> {
    let (name, container) = (&seen.name, wanted.container(&seen.name)?);
    if let Some(super::hooks::PostStart::Failed { .. }) = view.pod.lifecycle.starts.get(&seen.id) {
        return Some("FailedPostStartHook".to_owned());
    }
    if reset::under_way(view, wanted) {
        return Some("killing".to_owned());
    }
    let init = matches!(container.kind, ContainerKind::Init | ContainerKind::Sidecar);
    let who = if init { "Init container" } else { "Container" };
    if seen.phase == observed::Phase::Unknown {
        return Some(format!(
            "{who} is in \"unknown\" state, try killing it before restart"
        ));
    }
    let changed = !seen.hash.is_empty() && seen.hash != container.hash;
    let (what, again) = match view.pod.unwell.get(&seen.id) {
        _ if changed => ("definition changed", true),
        Some(unwell) => {
            let what = match unwell.startup {
                true => "failed startup probe",
                false => "failed liveness probe",
            };
            let again = super::restart::after_kill(wanted, container);
            if !again && !stays(view, wanted) {
                return None;
            }
            (what, again)
        }
        // Of all kinds of containers in the same words.
        None if resize::restarts(view, container, seen) => {
            return Some(format!("Container {name} resize requires restart"));
        }
        None => return None,
    };
    // Those beside the others always are, and nobody says so.
    let follows = if again && !init {
        ", will be restarted"
    } else {
        ""
    };
    Some(format!("{who} {name} {what}{follows}"))
}

/// Whether any regular container runs on or runs again. Where none does the pod ends, and its
/// containers are stopped without a word of their probes.
fn stays(view: &View<'_>, wanted: &Wanted) -> bool {
    let mut all = wanted.containers.iter();
    all.any(|container| {
        let seen = view.observed().newest(&container.name);
        let unwell = seen.is_some_and(|seen| view.pod.unwell.contains_key(&seen.id));
        container.kind == ContainerKind::Regular
            && match seen {
                Some(seen) if seen.may_run() && !unwell => true,
                Some(seen) if seen.may_run() => super::restart::after_kill(wanted, container),
                _ => super::restart::wanted_again(view, wanted, container, seen),
            }
    })
}

/// Whether a container waits for what happened in this life: a former one has told of the rest.
fn is_news(view: &View<'_>, note: &Note, born: Timestamp) -> bool {
    let ended = view.observed().newest(&note.container);
    let ended = ended.and_then(|seen| seen.finished_at);
    note.reason != reason::CRASH_LOOP_BACK_OFF || ended.is_none_or(|at| at >= born)
}

fn back_offs(view: &View<'_>, wanted: &Wanted, before: &Plan, plan: &Plan, told: &mut Vec<Notice>) {
    for note in &plan.notes {
        let same = |old: &&Note| old.container == note.container && old.reason == note.reason;
        let known = before.notes.iter().find(same);
        let part = part(&wanted.manifest, &note.container);
        let mut tell = |part: &str, warning, reason: &str, message| {
            told.push(Notice {
                part: part.to_owned(),
                warning,
                reason: reason.to_owned(),
                message,
            });
        };
        if known.is_some_and(|old| old.retry_at >= note.retry_at || note.retry_at.is_none()) {
            continue;
        }
        if note.reason == reason::CRASH_LOOP_BACK_OFF {
            let message = format!(
                "Back-off restarting failed container {} in pod {}_{}({})",
                note.container, wanted.name, wanted.namespace, view.pod.uid
            );
            tell(&part, true, "BackOff", message);
        } else if note.reason == reason::IMAGE_PULL_BACK_OFF {
            // What follows are the words of the last try.
            let words = note.message.split("\": ").next().unwrap_or_default();
            let closed = words.len() < note.message.len();
            let message = format!("{words}{}", if closed { "\"" } else { "" });
            // The image of a volume is the pod's.
            let own = wanted.container(&note.container);
            let own = own.is_some_and(|own| message.ends_with(&format!(" \"{}\"", own.image)));
            tell(if own { &part } else { "" }, false, "BackOff", message);
            let words = "Error: ImagePullBackOff".to_owned();
            tell(&part, true, "Failed", words);
        }
    }
}

fn sandbox(view: &View<'_>, plan: &Plan, told: &mut Vec<Notice>) {
    let made = plan.steps.iter().any(|s| s.key() == StepKey::Sandbox);
    let tried = view.pod.failures.contains_key(&StepKey::Sandbox);
    if made && !tried && !view.observed().sandboxes.is_empty() {
        let words = "Pod sandbox changed, it will be killed and re-created.";
        told.push(Notice::of_pod(false, "SandboxChanged", words));
    }
}

fn network(view: &View<'_>, before: &Plan, plan: &Plan, told: &mut Vec<Notice>) {
    const WAITS: &str = "the pod network: ";
    let waits = |plan: &Plan| plan.waiting.iter().any(|w| w.what.starts_with(WAITS));
    let Err(why) = &view.node.network else { return };
    if waits(plan) && !waits(before) {
        let (reason, message) = why.split_once(": ").unwrap_or(("", why));
        told.push(Notice::of_pod(
            true,
            "NetworkNotReady",
            format!("network is not ready: container runtime network not ready: NetworkReady=false reason:{reason} message:{message}"),
        ));
    }
}

fn resizes(view: &View<'_>, wanted: &Wanted, before: &Plan, plan: &Plan, told: &mut Vec<Notice>) {
    let generation = wanted.manifest.generation().unwrap_or_default();
    // A former life has told of what it left.
    let first = before.phase == Phase::Unjudged;
    if let Verdict::Pending { reason, message } = &plan.resize
        && before.resize != plan.resize
        && !first
    {
        let event = if *reason == condition_reason::INFEASIBLE {
            "ResizeInfeasible"
        } else {
            "ResizeDeferred"
        };
        // Where there is no room yet it is called as at a refusal.
        let lacks = admission::unfit(view, wanted).filter(|_| event == "ResizeDeferred");
        let word = lacks.map_or((*reason).to_owned(), |(word, _)| word);
        let prefix = format!("Pod resize {word}");
        let words = summary(&wanted.manifest, &prefix, generation, message);
        told.push(Notice::of_pod(true, event, words));
    }
    let gives = plan
        .steps
        .iter()
        .any(|s| matches!(s, Step::Allocate { .. }));
    if gives && !view.pod.failures.contains_key(&StepKey::Journal) {
        let words = summary(&wanted.manifest, "Pod resize started", generation, "");
        told.push(Notice::of_pod(false, "ResizeStarted", words));
    }
    let error = |of: &Plan| of.resizing.as_ref().map(|r| r.error.clone());
    match (&before.resizing, &plan.resizing) {
        (Some(was), None) if view.pod.journal.terminal.is_none() => {
            let words = "Pod resize completed";
            let words = summary(&wanted.manifest, words, was.generation, "");
            told.push(Notice::of_pod(false, "ResizeCompleted", words));
        }
        (_, Some(now)) if !now.error.is_empty() && error(before).as_ref() != Some(&now.error) => {
            let words = "Pod resize error";
            let words = summary(&wanted.manifest, words, now.generation, &now.error);
            told.push(Notice::of_pod(true, "ResizeError", words));
        }
        _ => {}
    }
}

/// The containers' resources as upstream's events have them.
fn summary(manifest: &Manifest, prefix: &str, generation: i64, error: &str) -> String {
    #[derive(Serialize)]
    struct Container<'a> {
        name: &'a str,
        resources: k8s_openapi::api::core::v1::ResourceRequirements,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<Container<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<Container<'a>>,
        generation: i64,
        #[serde(skip_serializing_if = "str::is_empty")]
        error: &'a str,
    }
    fn one(of: &k8s_openapi::api::core::v1::Container) -> Container<'_> {
        Container {
            name: &of.name,
            resources: of.resources.clone().unwrap_or_default(),
        }
    }
    let spec = manifest.spec();
    let summary = Summary {
        init_containers: spec.init_containers.iter().flatten().map(one).collect(),
        containers: spec.containers.iter().map(one).collect(),
        generation,
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("{prefix}: {summary}"),
        Err(_) => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests;
