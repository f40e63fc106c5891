//! What pods take of the heap while nothing happens: one of 100 pods that run, and whose statuses the API
//! server has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TokenBucket;
use polylet_watch::{Store, Update, Value};
use serde_json::json;

use crate::convert;
use crate::core::events::{Correlator, EventNotice, InvolvedObject};
use crate::core::published::StatusChange;
use crate::core::report::desired::{ApiAction, ApiStatus, DesiredStatus};
use crate::core::report::merge::PhaseRules;
use crate::core::report::queue::PatchQueue;
use crate::core::report::request::{PatchResult, StatusRequest};
use crate::core::shared_status::SharedStatus;
use crate::input::Input;
use crate::lifecycle_counts::LifecycleCounts;
use crate::state::State;
use crate::status_store::StatusStore;
use crate::trace::StartTraces;
use polylet_wire::podconfig::v1::PodSource;

mod allocator;
mod pods;

use allocator::live_bytes;
use pods::{api_pod, facts, number_of, pending, uid};

const PODS: usize = 100;
/// A pod's share of everything, and a tenth more: types of the API grow with its versions.
const MAX_BYTES: usize = 11_300;
/// The share of a pod with three events.
const MAX_EVENT_BYTES: usize = 900;

/// Everything that knows a pod, as the event loop calls it.
struct ReporterModel {
    state: State,
    queue: PatchQueue,
    traces: StartTraces,
    counts: LifecycleCounts,
    rate_limit: TokenBucket<Duration>,
    now: Duration,
}

impl ReporterModel {
    fn new() -> Self {
        let store = StatusStore::new(Store::new("1"));
        let mut reporter = Self {
            state: State::new(BTreeMap::new(), store),
            queue: PatchQueue::default(),
            traces: StartTraces::new(BTreeSet::new(), "node".into(), String::new()),
            counts: LifecycleCounts::default(),
            rate_limit: TokenBucket::new(0.0, 0.0, Duration::ZERO),
            now: Duration::ZERO,
        };
        for source in [PodSource::File, PodSource::Http, PodSource::Api] {
            reporter.handle(Input::Pod(source, Update::Synced));
        }
        reporter.handle(Input::Sync(Box::new(Update::Synced)));
        reporter.handle(Input::RuntimeState(Update::Synced));
        reporter.handle(Input::Probe(Update::Synced));
        reporter.handle(Input::Runtime(Value::Current(Default::default())));
        reporter.reconcile();
        reporter
    }

    fn handle(&mut self, input: Input) {
        let api_pod = match &input {
            Input::Pod(PodSource::Api, Update::Upsert(uid, pod)) => {
                self.traces.record(uid, pod.cause.as_ref());
                self.counts.on_pod(uid, pod.cause.as_ref());
                Some(uid.clone())
            }
            _ => None,
        };
        self.state.handle_input(input);
        if let Some(uid) = api_pod {
            self.counts.on_watched(&uid, &self.state);
            let status = self.state.api_status(&uid).cloned();
            let uid_there = uid.clone();
            let status = status.map(|status| ApiStatus {
                uid: uid_there,
                status,
            });
            self.queue.set_api_status(&uid, status, self.now);
        }
    }

    fn reconcile(&mut self) {
        let (traces, counts, queue) = (&mut self.traces, &mut self.counts, &mut self.queue);
        let host_ips = || vec!["192.0.2.1".to_owned()];
        loop {
            self.state.reconcile_some(host_ips, |uid, change| {
                let cause = traces.drain(uid);
                if let StatusChange::Updated {
                    published, before, ..
                } = change
                {
                    let (manifest, status) = (&published.manifest, &published.status);
                    counts.on_published(uid, before.as_deref(), published);
                    drop(traces.span(manifest, status, false, &cause));
                    let desired = DesiredStatus {
                        namespace: manifest.namespace().to_owned(),
                        name: manifest.name().to_owned(),
                        status: status.clone(),
                        phase: PhaseRules {
                            may_run: true,
                            is_static: false,
                        },
                        deleting: false,
                        deletable: false,
                    };
                    queue.set_desired(uid, Some(desired), self.now);
                }
                cause
            });
            if self.state.is_reconciled() {
                return;
            }
        }
    }

    /// Sends patches until none is due.
    fn patch_all(&mut self) {
        loop {
            self.now += Duration::from_secs(20);
            let due = self.queue.take_due(&mut self.rate_limit, self.now);
            if due.is_empty() {
                return;
            }
            due.iter().for_each(|request| self.patch(request));
        }
    }

    /// The API server answers, and its watch delivers the same.
    fn patch(&mut self, request: &StatusRequest) {
        assert!(matches!(request.action, ApiAction::Patch(_)));
        let stored = as_stored(self.own(request.pod.as_str()));
        let answer = convert::api_status(&stored, &request.pod).unwrap();
        let result = PatchResult::Patched(answer);
        self.queue.on_completed(request, result, self.now);
        self.handle(api_pod(number_of(request.pod.as_str()), stored));
        self.reconcile();
    }

    fn be_quiet(&mut self) {
        self.state.on_quiet();
        for (uid, own) in self.state.take_dropped() {
            self.queue.drop_parsed(&uid, &own);
        }
    }

    fn own(&self, uid: &str) -> SharedStatus {
        self.state.statuses()[uid].clone()
    }
}

/// A patched status as the API server returns it.
fn as_stored(status: SharedStatus) -> Vec<u8> {
    let mut status = serde_json::to_value(&*status).unwrap();
    for container in status["containerStatuses"].as_array_mut().unwrap() {
        container["lastState"] = json!({});
    }
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["lastProbeTime"] = json!(null);
    }
    status.to_string().into_bytes()
}

#[test]
fn running_pods_have_one_status_each() {
    let mut reporter = ReporterModel::new();
    let empty = live_bytes();
    for number in 0..PODS {
        reporter.handle(api_pod(number, pending()));
    }
    reporter.reconcile();
    for number in 0..PODS {
        facts(number)
            .into_iter()
            .for_each(|fact| reporter.handle(fact));
        reporter.reconcile();
    }
    reporter.patch_all();
    reporter.be_quiet();
    let bytes = live_bytes().abs_diff(empty) as usize / PODS;
    println!("{bytes} bytes for each pod");
    for uid in (0..PODS).map(uid) {
        assert!(reporter.queue.is_acknowledged(uid.as_str()));
        assert!(
            !reporter
                .state
                .desired_manifest(uid.as_str())
                .unwrap()
                .is_parsed()
        );
        let own = reporter.own(&uid);
        let copies = [
            reporter.state.api_status(uid.as_str()),
            reporter.queue.desired_status(uid.as_str()),
        ];
        assert!(copies.iter().all(|it| it.unwrap().is_same(&own)));
        assert!(!own.is_parsed());
    }
    assert!(bytes < MAX_BYTES, "{bytes}");
}

#[test]
fn known_events_are_hashes() {
    let before = live_bytes();
    let mut correlator = Correlator::new("node");
    let empty = live_bytes().abs_diff(before);
    assert!(empty < 4096, "{empty}");
    let before = live_bytes();
    for number in 0..PODS {
        for reason in ["Pulled", "Created", "Started"] {
            let notice = EventNotice {
                id: format!("{number} {reason}"),
                object: InvolvedObject {
                    kind: "Pod".into(),
                    namespace: "default".into(),
                    name: pods::name(number),
                    uid: uid(number),
                },
                field_path: "spec.containers{web}".into(),
                warning: false,
                reason: reason.into(),
                message: "Container image is already present on the machine".into(),
                at: Timestamp::UNIX_EPOCH,
                annotations: BTreeMap::new(),
            };
            assert!(correlator.correlate(&notice, Duration::ZERO).is_some());
        }
    }
    let bytes = live_bytes().abs_diff(before) as usize / PODS;
    println!("{bytes} bytes for the events of each pod");
    assert!(bytes < MAX_EVENT_BYTES, "{bytes}");
}
