//! The accepted set of one source, and everything that is known beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{Pod, Problem};
use polylet_wire::time::to_wire;
use tokio::time::timeout;
use tracing::Span;

use crate::convert;
use crate::core::accept::{Content, accept};
use crate::core::identity::Place;
use crate::core::kept::{Kept, KeptCause};
use crate::core::merge::{Origins, View};
use crate::core::{Finding, PodItem, Source};
use crate::keep::AtOnce;
use crate::source::directory::{Listing, Looked, Outcome, Seen};
use crate::source::http::{Answer, Fetched};
use crate::source::observe;

/// More than this is read and checked on a thread of its own.
const MANY_BYTES: usize = 64 * 1024;
/// Nothing that is meant to be a manifest takes longer to check.
const PATIENCE: Duration = Duration::from_secs(5);

/// The trace of a change that was seen.
struct Trace {
    span: Span,
    observed_at: Timestamp,
    /// It is the trace of a pod.
    taken: bool,
}

/// One source.
pub(crate) struct Set {
    source: Source,
    node: String,
    /// Node and path or URL, as kept.
    of: String,
    /// The path, or the URL without what may be secret in it.
    shown: String,
    pub(crate) origins: Origins,
    causes: BTreeMap<String, KeptCause>,
    /// Wrong with the source as a whole.
    trouble: Option<String>,
    heard: bool,
    stale_since: Option<Timestamp>,
    pub(crate) problems: Vec<Problem>,
    /// Traces of the changes taken in since the last publication.
    traces: BTreeMap<String, Trace>,
    store: Store<String, Pod>,
    keeper: AtOnce,
}

impl Set {
    pub(crate) fn open(
        source: Source,
        node: &str,
        place: Option<String>,
        shown: Option<String>,
        keeper: AtOnce,
        store: Store<String, Pod>,
    ) -> Set {
        let configured = place.is_some();
        let of = format!("{node} {}", place.unwrap_or_default());
        let kept = if configured {
            keeper.load(&of)
        } else {
            Kept::default()
        };
        if !configured {
            store.mark_whole();
        }
        Set {
            source,
            node: node.to_owned(),
            of,
            shown: shown.unwrap_or_default(),
            origins: kept.origins(),
            stale_since: kept.stale_since,
            causes: kept.causes,
            trouble: None,
            heard: !configured,
            problems: Vec::new(),
            traces: BTreeMap::new(),
            store,
            keeper,
        }
    }

    pub(crate) async fn take_directory(&mut self, looked: Looked) {
        match looked.listing {
            Listing::Partial => {}
            Listing::Missing => {
                self.origins.retain(|_| false);
                self.hear();
                self.trouble = Some("is not there: no pods, until it is".to_owned());
            }
            Listing::Whole(there) => {
                self.origins.retain(|origin| there.contains(origin));
                self.hear();
            }
            Listing::Unreadable(message) => self.away(message),
        }
        for file in looked.files {
            self.take_file(file).await;
        }
    }

    async fn take_file(&mut self, file: Seen) {
        let Seen {
            origin,
            observed_at,
            span,
            outcome,
        } = file;
        match outcome {
            Outcome::Gone => return self.origins.forget(&origin),
            Outcome::Unreadable { message, stamp } => {
                span.record("otel.status_code", "ERROR")
                    .record("otel.status_description", message.as_str());
                self.origins
                    .fail(&origin, message, stamp.unwrap_or_default());
            }
            // What half a file leaves out is not taken away; the source reads it again.
            Outcome::Read { settled: false, .. } if self.origins.gives(&origin) => return,
            Outcome::Read { bytes, stamp, .. } => {
                let content = self.accept(bytes, origin.clone(), &span).await;
                self.origins.learn(&origin, content, stamp);
            }
        }
        self.traces.insert(
            origin,
            Trace {
                span,
                observed_at,
                taken: false,
            },
        );
    }

    pub(crate) async fn take_http(&mut self, answer: Answer) {
        let Answer {
            observed_at,
            span,
            fetched,
        } = answer;
        match fetched {
            Err(message) => self.away(message),
            Ok(Fetched::Same) => self.hear(),
            Ok(Fetched::Body { url, bytes, stamp }) => {
                let shown = self.shown.clone();
                let blank = bytes.iter().all(u8::is_ascii_whitespace);
                let content = if blank {
                    let finding = Finding::new("", "answers with an empty body: no pods");
                    Content {
                        findings: vec![finding],
                        ..Content::default()
                    }
                } else {
                    self.accept(bytes, url, &span).await
                };
                self.origins.retain(|origin| origin == shown);
                self.origins.learn(&shown, content, stamp);
                self.traces.insert(
                    shown,
                    Trace {
                        span,
                        observed_at,
                        taken: false,
                    },
                );
                self.hear();
            }
        }
    }

    fn hear(&mut self) {
        self.heard = true;
        self.trouble = None;
        self.stale_since = None;
    }

    /// Nothing is known of the source now. Its set stands: the one of this life as it is, the one
    /// that was kept with the time since when it has not been confirmed.
    fn away(&mut self, message: String) {
        self.trouble = Some(message);
        if !self.heard && self.origins.iter().next().is_some() {
            self.stale_since.get_or_insert_with(Timestamp::now);
        }
    }

    async fn accept(&self, bytes: Vec<u8>, origin: String, span: &Span) -> Content {
        let validating = if span.is_disabled() {
            Span::none()
        } else {
            tracing::info_span!(parent: span, "podconfig.validate", file = origin, otel.status_code = tracing::field::Empty, otel.status_description = tracing::field::Empty)
        };
        let seen: BTreeMap<String, Timestamp> = self.seen();
        let (node, source, big) = (self.node.clone(), self.source, bytes.len() > MANY_BYTES);
        let entered = validating.clone();
        let work = move || {
            let place = Place {
                node: &node,
                source,
                origin: &origin,
            };
            entered.in_scope(|| {
                accept(
                    &bytes,
                    &place,
                    &|uid| seen.get(uid).copied(),
                    Timestamp::now(),
                )
            })
        };
        let content = if big {
            let failed = |why: String| Content {
                findings: vec![Finding::new("", why)],
                broken: true,
                ..Content::default()
            };
            match timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
                Ok(checked) => {
                    checked.unwrap_or_else(|error| failed(format!("could not be checked: {error}")))
                }
                Err(_) => failed(format!(
                    "takes longer than {} s to check",
                    PATIENCE.as_secs()
                )),
            }
        } else {
            work()
        };
        if content.broken {
            let first = content
                .findings
                .first()
                .map(|f| format!("{} {}", f.field, f.message))
                .unwrap_or_default();
            validating
                .record("otel.status_code", "ERROR")
                .record("otel.status_description", first.trim());
        }
        content
    }

    fn seen(&self) -> BTreeMap<String, Timestamp> {
        self.origins
            .iter()
            .flat_map(|(_, held)| &held.pods)
            .map(|pod| (pod.uid.clone(), pod.seen))
            .collect()
    }

    /// Keeps the time since when a problem is known; says each once.
    pub(crate) fn tell_problems(&mut self, view: &View, now: Timestamp) {
        let trouble = self
            .trouble
            .iter()
            .map(|message| (self.shown.clone(), Finding::new("", message.as_str())));
        let findings = trouble.chain(view.findings.iter().cloned());
        let mut problems: Vec<Problem> = Vec::new();
        for (origin, finding) in findings {
            let fresh = convert::problem(self.source, &origin, &finding, now);
            let same = |p: &&Problem| {
                p.origin == fresh.origin && p.field == fresh.field && p.message == fresh.message
            };
            match self.problems.iter().find(same) {
                Some(known) => problems.push(known.clone()),
                None => {
                    tracing::warn!(
                        origin = fresh.origin,
                        field = fresh.field,
                        "{}",
                        fresh.message
                    );
                    problems.push(fresh);
                }
            }
        }
        let there: BTreeSet<&str> = problems.iter().map(|p| p.origin.as_str()).collect();
        for solved in self
            .problems
            .iter()
            .map(|p| p.origin.as_str())
            .filter(|o| !there.contains(o))
            .collect::<BTreeSet<_>>()
        {
            tracing::info!(origin = solved, "no problem any more");
        }
        self.problems = problems;
    }

    /// Whether there is something to say: the source was heard, or what was kept stands for it.
    pub(crate) fn stands(&self) -> bool {
        self.heard || self.stale_since.is_some()
    }

    /// Brings the store in step, and has the set kept. The traces of changes end with it.
    pub(crate) async fn publish(&mut self, view: &View) {
        let mut traces = std::mem::take(&mut self.traces);
        let mut further = Vec::new();
        let mut causes = BTreeMap::new();
        let mut pods = BTreeMap::new();
        for (uid, (origin, item)) in &view.pods {
            let cause = match self
                .causes
                .get(uid)
                .filter(|cause| cause.digest == item.digest)
            {
                Some(known) => known.clone(),
                None => new_cause(item, origin, &mut traces, &mut further),
            };
            pods.insert(
                uid.clone(),
                convert::pod(item, self.source, &cause, self.stale_since),
            );
            causes.insert(uid.clone(), cause);
        }
        self.causes = causes;
        for trace in traces.values().filter(|trace| !trace.taken) {
            trace.span.record("result", "nothing new");
        }
        if !self.stands() {
            return;
        }
        self.keeper.put(Kept::of(
            self.of.clone(),
            self.stale_since,
            &self.origins,
            self.causes.clone(),
        ));
        if self.source == Source::Http {
            // What the URL said cannot be read again while it is away; a file can.
            self.keeper.saved().await;
        }
        self.log_changes(&pods);
        self.store.replace(pods);
        if !self.store.is_whole() {
            self.store.mark_whole();
        }
    }

    fn log_changes(&self, pods: &BTreeMap<String, Pod>) {
        let before = self.store.snapshot();
        let name = |pod: &Pod| {
            pod.r#ref
                .as_ref()
                .map(|r| format!("{}/{}", r.namespace, r.name))
                .unwrap_or_default()
        };
        for (uid, pod) in pods.iter().filter(|(uid, _)| !before.contains_key(*uid)) {
            tracing::info!(pod = name(pod), uid, "accepted");
        }
        for (uid, pod) in before.iter().filter(|(uid, _)| !pods.contains_key(*uid)) {
            tracing::info!(pod = name(pod), uid, "removed");
        }
    }
}

/// A new trace for a new or changed pod. The first of an origin gets the trace that began with the
/// sight of it; each further one gets its own, linked to that.
fn new_cause(
    item: &PodItem,
    origin: &str,
    traces: &mut BTreeMap<String, Trace>,
    further: &mut Vec<Span>,
) -> KeptCause {
    let trace = traces
        .get_mut(origin)
        .filter(|trace| !trace.span.is_disabled());
    let (span, observed_at) = match trace {
        Some(trace) if !trace.taken => {
            trace.taken = true;
            (trace.span.clone(), trace.observed_at)
        }
        Some(trace) => {
            let span = observe(origin);
            span.follows_from(&trace.span);
            (span, trace.observed_at)
        }
        None => (observe(origin), Timestamp::now()),
    };
    span.record("k8s.pod.uid", item.uid.as_str())
        .record("k8s.pod.name", item.name.as_str())
        .record("k8s.namespace.name", item.namespace.as_str())
        .record("result", "accepted");
    let mut cause = cause::of_span(&span);
    cause.observed_at = Some(to_wire(observed_at));
    further.push(span);
    convert::kept_cause(&cause, &item.digest)
}
