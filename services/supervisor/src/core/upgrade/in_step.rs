//! Whether a service is healthy and in step with its peers.

use super::journal::CallEdge;
use crate::core::order::SUPERVISOR;

/// Automatic restarts of a new process that show that it will not run.
const MAX_RESTARTS: u32 = 3;

/// A service as the services themselves and their manager report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedService {
    /// The service.
    pub name: String,
    /// Its health check reports that it serves.
    pub serving: bool,
    /// Why it does not run or respond, for messages.
    pub problem: String,
    /// Incarnation of its process; empty if it does not respond.
    pub incarnation: String,
    /// Automatic restarts.
    pub restarts: u32,
    /// The state of its streams.
    pub peers: Vec<ObservedPeer>,
}

/// The streams of a service from one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPeer {
    /// The peer.
    pub service: String,
    /// All streams have received the peer's state.
    pub synced: bool,
    /// Incarnation of the peer's process that they come from; empty without positions.
    pub incarnation: String,
}

/// The state of a service that was just started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    /// Healthy, and every stream from and to it has synced.
    InStep,
    /// Not yet, with what is missing.
    Behind(String),
    /// It fails again and again.
    Failing(String),
}

/// Judges a service. `restarts` is their number when the process was replaced.
pub fn judge(
    service: &str,
    services: &[ObservedService],
    excused: &[CallEdge],
    restarts: u32,
) -> StepVerdict {
    let Some(own) = services.iter().find(|one| one.name == service) else {
        return StepVerdict::Behind(format!("{service} is not known"));
    };
    let failures = own.restarts.saturating_sub(restarts);
    if failures >= MAX_RESTARTS {
        let problem = &own.problem;
        return StepVerdict::Failing(format!("{service} exited {failures} times: {problem}"));
    }
    if !own.serving || own.incarnation.is_empty() {
        return StepVerdict::Behind(match own.problem.as_str() {
            "" => format!("{service} is not serving"),
            problem => format!("{service} is not serving: {problem}"),
        });
    }
    let is_excused = |edge: &CallEdge| excused.contains(edge);
    let behind: Vec<String> = edges_behind(services)
        .into_iter()
        .filter(|edge| edge.caller == service || edge.callee == service)
        .filter(|edge| !is_excused(edge))
        .map(|edge| format!("{} is not in step with {}", edge.caller, edge.callee))
        .collect();
    if behind.is_empty() {
        StepVerdict::InStep
    } else {
        StepVerdict::Behind(behind.join(", "))
    }
}

/// The calls whose streams have not received the state of the callee's present process.
pub fn edges_behind(services: &[ObservedService]) -> Vec<CallEdge> {
    let mut behind = Vec::new();
    for caller in services {
        for peer in &caller.peers {
            let callee = services.iter().find(|one| one.name == peer.service);
            let present = callee.map_or("", |callee| callee.incarnation.as_str());
            let is_present = peer.incarnation.is_empty() || peer.incarnation == present;
            if !peer.synced || !is_present {
                behind.push(CallEdge {
                    caller: caller.name.clone(),
                    callee: peer.service.clone(),
                });
            }
        }
    }
    behind
}

/// The calls that an upgrade does not wait for: those that are not in step although both ends serve, and those
/// of the supervisor to services that do not serve.
pub fn excused_edges(services: &[ObservedService]) -> Vec<CallEdge> {
    let serves = |name: &str| services.iter().any(|one| one.name == name && one.serving);
    let mut behind = edges_behind(services);
    behind
        .retain(|edge| serves(&edge.caller) && (edge.caller == SUPERVISOR || serves(&edge.callee)));
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, incarnation: &str, peers: &[(&str, bool, &str)]) -> ObservedService {
        ObservedService {
            name: name.to_owned(),
            serving: true,
            incarnation: incarnation.to_owned(),
            peers: peers
                .iter()
                .map(|(service, synced, incarnation)| ObservedPeer {
                    service: (*service).to_owned(),
                    synced: *synced,
                    incarnation: (*incarnation).to_owned(),
                })
                .collect(),
            ..ObservedService::default()
        }
    }

    fn behind(text: &str) -> StepVerdict {
        StepVerdict::Behind(text.to_owned())
    }

    #[test]
    fn a_service_is_in_step_when_both_directions_are() {
        let all = |prober: ObservedService| [service("pleg", "p2", &[]), prober];
        let pleg = |prober: ObservedService| judge("pleg", &all(prober), &[], 0);
        let synced = service("prober", "b1", &[("pleg", true, "p2")]);
        assert_eq!(pleg(synced.clone()), StepVerdict::InStep);
        assert_eq!(judge("prober", &all(synced), &[], 0), StepVerdict::InStep);
        // Calls without positions have no incarnation.
        let called = service("prober", "b1", &[("pleg", true, "")]);
        assert_eq!(pleg(called), StepVerdict::InStep);
        for peer in [("pleg", false, "p2"), ("pleg", true, "p1")] {
            let stale = service("prober", "b1", &[peer]);
            let expected = behind("prober is not in step with pleg");
            assert_eq!(pleg(stale.clone()), expected, "{peer:?}");
            let own = judge("prober", &all(stale.clone()), &[], 0);
            assert_eq!(own, expected, "{peer:?}");
            // What was not in step before is not waited for.
            let excused = excused_edges(&all(stale.clone()));
            assert_eq!(excused.len(), 1);
            let judged = judge("pleg", &all(stale), &excused, 0);
            assert_eq!(judged, StepVerdict::InStep);
        }
    }

    #[test]
    fn edges_of_a_service_that_was_down_are_waited_for() {
        let mut all = [
            service("pleg", "", &[]),
            service("prober", "b1", &[("pleg", false, "p1")]),
        ];
        all[0].serving = false;
        assert_eq!(excused_edges(&all), []);
        assert_eq!(judge("pleg", &all, &[], 0), behind("pleg is not serving"));
        all[0].problem = "exit code 70".to_owned();
        let expected = behind("pleg is not serving: exit code 70");
        assert_eq!(judge("pleg", &all, &[], 0), expected);
        assert_eq!(
            judge("node-api", &all, &[], 0),
            behind("node-api is not known")
        );
    }

    #[test]
    fn a_crash_loop_fails_before_the_deadline() {
        let mut all = [service("pleg", "p1", &[])];
        all[0].problem = "exit code 70".to_owned();
        for (restarts, failing) in [(4, false), (6, false), (7, true), (9, true)] {
            all[0].restarts = restarts;
            let judged = judge("pleg", &all, &[], 4);
            assert_eq!(
                matches!(judged, StepVerdict::Failing(_)),
                failing,
                "{judged:?}"
            );
        }
        // Counted anew by another supervisor.
        all[0].restarts = 0;
        assert_eq!(judge("pleg", &all, &[], 4), StepVerdict::InStep);
    }
}
