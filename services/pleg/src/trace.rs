//! Which trace a change belongs to that nobody asked for, and the spans of runs that ended with it.

use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_kit::telemetry::{self, PastSpan};
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::{Container, ContainerPhase, PodState};
use polylet_wire::time;

/// A change without a caller belongs to the previous change of the pod within this time.
const CONSEQUENCE_WINDOW: Duration = Duration::from_secs(120);

/// The cause that a change without a caller is. It starts a trace, unless it follows from the previous change: an
/// init container that completes is part of the pod's start, and its run is a step of it. A failure always starts
/// a trace.
pub(crate) fn observed_cause(
    state: &PodState,
    previous: Option<&PodState>,
    now: Timestamp,
) -> Cause {
    let pod = state.r#ref.clone().unwrap_or_default();
    let span = tracing::info_span!(parent: None, "pleg.observe", k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name, k8s.namespace.name = pod.namespace,
        polylet.container.count = state.containers.len());
    let failed = state
        .containers
        .iter()
        .any(|c| c.phase() == ContainerPhase::Exited && c.exit_code != 0);
    let known = previous.and_then(|previous| Some((previous, previous.cause.as_ref()?)));
    let known = known.filter(|(_, cause)| !failed && is_recent(cause, now));
    let Some((previous, cause)) = known else {
        cause::start_trace(&span);
        cause::name_root(&span, cause::root::CONTAINER_EXIT);
        return cause::from_span(&span);
    };
    let ended = ended_runs(previous, state);
    let notices = ended.filter_map(|run| record_run(run, cause, now));
    let followed = Cause {
        links: notices.take(cause::MAX_LINKS).collect(),
        ..cause.clone()
    };
    cause::follow(&span, Some(&followed));
    Cause {
        // The time of the first change, so that a chain of consequences ends.
        observed_at: cause.observed_at,
        ..cause::from_span(&span)
    }
}

/// Records the run of a container, and after it the time until its end was noticed `now`: until the runtime had
/// reported it. Returns the traceparent of the later one.
fn record_run(run: PastSpan, cause: &Cause, now: Timestamp) -> Option<String> {
    let notice = notice_of(&run, now);
    let run = telemetry::record(run, cause)?;
    let ended = Cause {
        traceparent: run.clone(),
        ..Cause::default()
    };
    // None where the runtime's clock is ahead of ours.
    Some(telemetry::record(notice, &ended).unwrap_or(run))
}

/// The time from the end of a run until `now`.
fn notice_of(run: &PastSpan, now: Timestamp) -> PastSpan {
    PastSpan {
        name: "pleg.notice_exit",
        started_at: run.ended_at,
        ended_at: now,
        attributes: run.attributes.clone(),
    }
}

/// The runs of containers that were not over before.
fn ended_runs(before: &PodState, now: &PodState) -> impl Iterator<Item = PastSpan> {
    let was_over = |container: &Container| {
        let mut known = before.containers.iter();
        known.any(|known| known.id == container.id && known.phase() == ContainerPhase::Exited)
    };
    let pod = now.r#ref.clone().unwrap_or_default();
    now.containers
        .iter()
        .filter(move |c| c.phase() == ContainerPhase::Exited && !was_over(c))
        .filter_map(move |container| {
            Some(PastSpan {
                name: "container.run",
                started_at: time::from_wire_opt(container.started_at.as_ref())?,
                ended_at: time::from_wire_opt(container.finished_at.as_ref())?,
                attributes: vec![
                    ("k8s.pod.uid", pod.uid.clone()),
                    ("k8s.pod.name", pod.name.clone()),
                    ("k8s.namespace.name", pod.namespace.clone()),
                    ("k8s.container.name", container.name.clone()),
                    ("container.id", container.id.clone()),
                ],
            })
        })
}

fn is_recent(cause: &Cause, now: Timestamp) -> bool {
    let at = time::from_wire_opt(cause.observed_at.as_ref());
    let age = at.map(|at| now.duration_since(at));
    !cause.traceparent.is_empty()
        && age.is_some_and(|age| Duration::try_from(age).unwrap_or_default() < CONSEQUENCE_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, phase: ContainerPhase, times: (i64, i64)) -> Container {
        let at = |second| Some(time::to_wire(Timestamp::from_second(second).unwrap()));
        Container {
            id: id.to_owned(),
            phase: phase.into(),
            started_at: at(times.0),
            finished_at: at(times.1),
            ..Container::default()
        }
    }

    #[test]
    fn runs_that_have_just_ended_are_spans() {
        let pod = |containers: &[Container]| PodState {
            containers: containers.to_vec(),
            ..PodState::default()
        };
        let (running, exited) = (ContainerPhase::Running, ContainerPhase::Exited);
        let unstarted = Container {
            started_at: None,
            ..container("d", exited, (0, 6))
        };
        let before = pod(&[
            container("a", exited, (1, 2)),
            container("b", running, (3, 0)),
        ]);
        let now = pod(&[
            container("a", exited, (1, 2)),
            container("b", exited, (3, 4)),
            container("c", running, (5, 0)),
            unstarted,
        ]);
        let runs: Vec<_> = ended_runs(&before, &now).collect();
        assert_eq!(runs.len(), 1);
        assert!(
            runs[0]
                .attributes
                .contains(&("container.id", "b".to_owned()))
        );
        let times = |span: &PastSpan| (span.started_at.as_second(), span.ended_at.as_second());
        assert_eq!(times(&runs[0]), (3, 4));
        let notice = notice_of(&runs[0], Timestamp::from_second(9).unwrap());
        assert_eq!(times(&notice), (4, 9));
        assert_eq!(notice.attributes, runs[0].attributes);
    }
}
