//! State of one static source.

use polylet_kit::state_file::StateFileError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::HealthConditions;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{ManifestError, Pod};
use tokio::time::timeout;
use tracing::Span;

use super::traces::PodTraces;
use crate::convert;
use crate::core::adoption::Adoption;
use crate::core::identity::ManifestOrigin;
use crate::core::merge::{Manifests, MergedPods};
use crate::core::parse::{Parsed, parse};
use crate::core::state::{PersistedCause, PersistedSource};
use crate::core::{StaticPodSource, field};
use crate::input::{DirListing, FetchResult, FileState, ReadResult, ScanResult, UrlResponse};
use crate::persist::ImmediateWriter;

/// The health condition of a source that cannot be read; its pods are retained.
const UNREADABLE: &str = "ManifestsUnreadable";
/// Larger manifests are parsed on a thread that may block.
const BLOCKING_PARSE_BYTES: usize = 64 * 1024;
/// Limit of the time for parsing, far above that of any real manifest.
const PARSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One static source.
pub(super) struct SourceState {
    source: StaticPodSource,
    node: String,
    /// Node name and path or URL, which the persisted state must match.
    source_id: String,
    /// The path, or the URL without secrets.
    display_name: String,
    manifests: Manifests,
    causes: BTreeMap<String, PersistedCause>,
    /// Error of the source as a whole.
    error: Option<String>,
    synced: bool,
    stale_since: Option<Timestamp>,
    errors: Vec<ManifestError>,
    /// Traces of changes since the last publication.
    traces: PodTraces,
    store: Store<PodUid, Pod>,
    writer: ImmediateWriter,
    /// The uids of pods that run.
    adoption: Adoption,
}

impl SourceState {
    /// Restores the persisted state of a source. `origin` is its path or URL, if it is configured.
    pub(super) fn new(
        source: StaticPodSource,
        node: &str,
        origin: Option<String>,
        display_name: Option<String>,
        writer: ImmediateWriter,
        store: Store<PodUid, Pod>,
    ) -> Result<SourceState, StateFileError> {
        let configured = origin.is_some();
        let source_id = format!("{node} {}", origin.unwrap_or_default());
        let persisted = if configured {
            writer.load(&source_id)?
        } else {
            PersistedSource::default()
        };
        if !configured {
            store.mark_synced();
        }
        Ok(SourceState {
            source,
            node: node.to_owned(),
            source_id,
            display_name: display_name.unwrap_or_default(),
            manifests: persisted.manifests(),
            adoption: Adoption {
                uids: persisted.uids(),
                ..Adoption::default()
            },
            stale_since: persisted.stale_since,
            causes: persisted.causes,
            error: None,
            synced: !configured,
            errors: Vec::new(),
            traces: PodTraces::default(),
            store,
            writer,
        })
    }

    /// Fingerprints of all manifests by origin.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = (String, String)> {
        self.manifests
            .iter()
            .map(|(origin, manifest)| (origin.clone(), manifest.fingerprint.clone()))
    }

    /// The merged manifests.
    pub(super) fn merged(&self) -> MergedPods {
        self.manifests.merged()
    }

    /// Current errors of the source and its manifests.
    pub(super) fn errors(&self) -> &[ManifestError] {
        &self.errors
    }

    pub(super) async fn handle_scan(&mut self, scan: ScanResult) {
        let now = Timestamp::now();
        match scan.listing {
            DirListing::Partial => {}
            DirListing::Missing => {
                self.manifests.retain(|_| false, now);
                self.mark_synced();
                self.error = Some("does not exist; the source has no pods".to_owned());
            }
            DirListing::Complete(origins) => {
                self.manifests
                    .retain(|origin| origins.contains(origin), now);
                self.mark_synced();
            }
            DirListing::Unreadable(message) => self.mark_failed(message),
        }
        self.adoption.directories = scan.pod_logs;
        for file in scan.files {
            self.handle_file(file).await;
        }
    }

    async fn handle_file(&mut self, file: FileState) {
        let FileState {
            origin,
            observed_at,
            span,
            result,
        } = file;
        match result {
            ReadResult::Gone => return self.manifests.remove(&origin, observed_at),
            ReadResult::Unreadable {
                message,
                fingerprint,
            } => {
                span.record("otel.status_code", "ERROR")
                    .record("otel.status_description", message.as_str());
                let fingerprint = fingerprint.unwrap_or_default();
                self.manifests.mark_failed(&origin, message, fingerprint);
            }
            // A half-written file removes nothing; the source reads it again.
            ReadResult::Read { settled: false, .. } if self.manifests.has_items(&origin) => return,
            ReadResult::Read {
                bytes,
                fingerprint,
                changed_at,
                ..
            } => {
                self.adoption.changed_at = changed_at;
                let parsed = self.parse(bytes, origin.clone(), &span).await;
                self.remember_uids(&parsed);
                self.manifests
                    .update(&origin, parsed, fingerprint, observed_at);
            }
        }
        self.traces.add(origin, span, observed_at);
    }

    pub(super) async fn handle_response(&mut self, response: UrlResponse) {
        let UrlResponse {
            observed_at,
            span,
            result,
        } = response;
        match result {
            Err(message) => self.mark_failed(message),
            Ok(FetchResult::Unchanged) => self.mark_synced(),
            Ok(FetchResult::Body {
                url,
                bytes,
                fingerprint,
            }) => {
                let origin = self.display_name.clone();
                let blank = bytes.iter().all(u8::is_ascii_whitespace);
                let parsed = if blank {
                    let message = "empty body; the source has no pods";
                    Parsed {
                        errors: vec![field::Error::new("", message)],
                        ..Parsed::default()
                    }
                } else {
                    self.parse(bytes, url, &span).await
                };
                self.remember_uids(&parsed);
                self.manifests.retain(|other| other == origin, observed_at);
                self.manifests
                    .update(&origin, parsed, fingerprint, observed_at);
                self.traces.add(origin, span, observed_at);
                self.mark_synced();
            }
        }
    }

    fn remember_uids(&mut self, parsed: &Parsed) {
        for (fingerprint, uid) in &parsed.uids {
            let known = self.adoption.uids.insert(fingerprint.clone(), uid.clone());
            if known.as_ref() != Some(uid) && parsed.adopted.contains(uid) {
                tracing::info!(pod_uid = uid, "static pod keeps the uid that it runs under");
            }
        }
    }

    fn mark_synced(&mut self) {
        self.synced = true;
        self.error = None;
        HealthConditions::of_process().clear(UNREADABLE, &self.display_name);
        self.stale_since = None;
    }

    /// Handles a source that could not be read: its pods are retained, and stale if they were
    /// restored and not confirmed since.
    fn mark_failed(&mut self, message: String) {
        HealthConditions::of_process().set(UNREADABLE, &self.display_name, &message);
        self.error = Some(message);
        if !self.synced && self.manifests.iter().next().is_some() {
            self.stale_since.get_or_insert_with(Timestamp::now);
        }
    }

    async fn parse(&self, bytes: Vec<u8>, origin: String, span: &Span) -> Parsed {
        let validating = if span.is_disabled() {
            Span::none()
        } else {
            tracing::info_span!(
                parent: span,
                "podconfig.validate",
                polylet.pod.origin = origin,
                otel.status_code = tracing::field::Empty,
                otel.status_description = tracing::field::Empty,
            )
        };
        let (first_seen, adoption) = (self.first_seen(), self.adoption.clone());
        let (node, source, length) = (self.node.clone(), self.source, bytes.len());
        let entered = validating.clone();
        let work = move || {
            let origin = ManifestOrigin {
                node: &node,
                source,
                origin: &origin,
                adoption: Some(&adoption),
            };
            let first_seen = |uid: &str| first_seen.get(uid).copied();
            entered.in_scope(|| parse(&bytes, &origin, &first_seen, Timestamp::now()))
        };
        let parsed = if length > BLOCKING_PARSE_BYTES {
            parse_blocking(work).await
        } else {
            work()
        };
        if parsed.incomplete {
            let error = parsed.errors.first();
            let error = error.map(|e| format!("{} {}", e.field, e.message));
            validating
                .record("otel.status_code", "ERROR")
                .record("otel.status_description", error.unwrap_or_default().trim());
        }
        parsed
    }

    fn first_seen(&self) -> BTreeMap<String, Timestamp> {
        self.manifests
            .iter()
            .flat_map(|(_, manifest)| &manifest.pods)
            .map(|pod| (pod.uid.clone(), pod.first_seen))
            .collect()
    }

    /// Updates the errors: each is logged once and keeps the time of its first occurrence.
    pub(super) fn update_errors(&mut self, merged: &MergedPods, now: Timestamp) {
        let own = self.error.iter().map(|message| {
            let error = field::Error::new("", message.as_str());
            (self.display_name.clone(), error)
        });
        let mut errors: Vec<ManifestError> = Vec::new();
        for (origin, error) in own.chain(merged.errors.iter().cloned()) {
            let error = convert::manifest_error(self.source, &origin, &error, now);
            let same = |e: &&ManifestError| {
                e.origin == error.origin && e.field == error.field && e.message == error.message
            };
            match self.errors.iter().find(same) {
                Some(known) => errors.push(known.clone()),
                None => {
                    tracing::warn!(
                        path = error.origin,
                        field = error.field,
                        error = error.message,
                        "manifest error"
                    );
                    errors.push(error);
                }
            }
        }
        let current: BTreeSet<&str> = errors.iter().map(|e| e.origin.as_str()).collect();
        let before = self.errors.iter().map(|e| e.origin.as_str());
        for path in before
            .filter(|origin| !current.contains(origin))
            .collect::<BTreeSet<_>>()
        {
            tracing::info!(path, "manifest errors resolved");
        }
        self.errors = errors;
    }

    /// Whether there is a state to publish: the source was read, or its restored state is stale.
    pub(super) fn can_publish(&self) -> bool {
        self.synced || self.stale_since.is_some()
    }

    /// Updates the store, persists the state, and ends the traces of all changes.
    pub(super) async fn publish(&mut self, merged: &MergedPods) {
        let mut traces = std::mem::take(&mut self.traces);
        let (mut causes, mut pods) = (BTreeMap::new(), BTreeMap::new());
        let mut restarts = false;
        for (uid, (origin, pod)) in &merged.pods {
            let known = self.causes.get(uid);
            let known = known.filter(|cause| cause.removed_at == pod.removed_at);
            let cause = match known.filter(|cause| cause.digest == pod.digest) {
                Some(known) => known.clone(),
                None => traces.new_cause(pod, origin, known.is_some()),
            };
            restarts |= known.is_none() && pod.removed_at.is_some();
            let wire = convert::pod(pod, self.source, &cause, self.stale_since);
            pods.insert(uid.as_str().into(), wire);
            causes.insert(uid.clone(), cause);
        }
        self.causes = causes;
        let uids = &mut self.adoption.uids;
        uids.retain(|_, uid| merged.pods.contains_key(uid));
        traces.record_unused();
        if !self.can_publish() {
            return;
        }
        let state = PersistedSource::new(
            self.source_id.clone(),
            self.stale_since,
            &self.manifests,
            self.causes.clone(),
            self.adoption.uids.clone(),
        );
        self.writer.schedule(state);
        if restarts || self.source == StaticPodSource::Http {
            // Unlike files, the response cannot be read again during an outage, and a removal leaves no
            // trace on the disk.
            self.writer.wait_until_saved().await;
        }
        self.log_changes(&pods);
        self.store.replace(pods);
        if !self.store.has_synced() {
            self.store.mark_synced();
        }
    }

    fn log_changes(&self, pods: &BTreeMap<PodUid, Pod>) {
        let before = self.store.snapshot();
        let name = |pod: &Pod| {
            pod.r#ref
                .as_ref()
                .map(|r| format!("{}/{}", r.namespace, r.name))
                .unwrap_or_default()
        };
        for (uid, pod) in pods.iter().filter(|(uid, _)| !before.contains_key(*uid)) {
            tracing::info!(pod = name(pod), pod_uid = uid.as_str(), "pod accepted");
        }
        for (uid, pod) in before.iter().filter(|(uid, _)| !pods.contains_key(*uid)) {
            tracing::info!(pod = name(pod), pod_uid = uid.as_str(), "pod removed");
        }
    }
}

/// Runs `work` on a thread that may block, for a limited time.
async fn parse_blocking(work: impl FnOnce() -> Parsed + Send + 'static) -> Parsed {
    let failed = |message: String| Parsed {
        errors: vec![field::Error::new("", message)],
        incomplete: true,
        ..Parsed::default()
    };
    match timeout(PARSE_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(error)) => failed(format!("parsing failed: {error}")),
        Err(_) => failed(format!(
            "parsing takes longer than {} s",
            PARSE_TIMEOUT.as_secs()
        )),
    }
}
