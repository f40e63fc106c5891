//! State of the event loop: the static sources, and what they publish.

mod source_state;
mod traces;

use polylet_kit::state_file::StateFileError;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{ManifestError, Pod};
use tokio::sync::watch;

use crate::config::Config;
use crate::core::merge::MergedPods;
use crate::core::{ObjectId, StaticPodSource};
use crate::input::Input;
use crate::persist::ImmediateWriter;
use crate::source::http::redact;
use source_state::SourceState;

/// Published state of the static sources, without the pods.
#[derive(Clone, Default)]
pub struct Published {
    /// Errors of all manifests.
    pub errors: Vec<ManifestError>,
    /// Objects of all manifests as canonical JSON.
    pub objects: Arc<BTreeMap<ObjectId, Bytes>>,
    /// Whether the objects are complete.
    pub objects_synced: bool,
}

/// Published state of the static sources.
#[derive(Clone)]
pub struct PodStreams {
    /// Pods of the manifest directory by uid.
    pub file: Store<PodUid, Pod>,
    /// Pods of the URL by uid.
    pub http: Store<PodUid, Pod>,
    /// Objects and errors.
    pub published: watch::Sender<Published>,
}

/// The static sources.
pub struct PodSources {
    file: SourceState,
    http: SourceState,
    published: watch::Sender<Published>,
}

impl PodSources {
    /// Restores the persisted state. Sources that are not configured are empty and synced.
    pub fn new(
        config: &Config,
        incarnation: &str,
        file_writer: ImmediateWriter,
        http_writer: ImmediateWriter,
    ) -> Result<(PodSources, PodStreams), StateFileError> {
        let streams = PodStreams {
            file: Store::new(incarnation),
            http: Store::new(incarnation),
            published: watch::Sender::new(Published::default()),
        };
        let path = config
            .directory
            .as_ref()
            .map(|d| d.path.display().to_string());
        let url = config.http.as_ref().map(|h| h.url.clone());
        let redacted = url.as_deref().map(redact);
        let sources = PodSources {
            file: SourceState::new(
                StaticPodSource::File,
                &config.node,
                path.clone(),
                path,
                file_writer,
                streams.file.clone(),
            )?,
            http: SourceState::new(
                StaticPodSource::Http,
                &config.node,
                url,
                redacted,
                http_writer,
                streams.http.clone(),
            )?,
            published: streams.published.clone(),
        };
        sources.publish_objects_and_errors(&sources.file.merged());
        Ok((sources, streams))
    }

    /// Fingerprints of the restored files.
    pub fn fingerprints(&self) -> BTreeMap<String, String> {
        self.file.fingerprints().collect()
    }

    /// Fingerprint of the restored response.
    pub fn http_fingerprint(&self) -> Option<String> {
        self.http
            .fingerprints()
            .next()
            .map(|(_, fingerprint)| fingerprint)
    }

    /// Handles an input; [`PodSources::publish`] follows.
    pub async fn handle_input(&mut self, input: Input) {
        match input {
            Input::Directory(scan) => self.file.handle_scan(scan).await,
            Input::Http(response) => self.http.handle_response(response).await,
        }
    }

    /// Publishes all changes: objects before the pods that refer to them.
    pub async fn publish(&mut self) {
        let (file, http) = (self.file.merged(), self.http.merged());
        let now = Timestamp::now();
        self.file.update_errors(&file, now);
        self.http.update_errors(&http, now);
        self.publish_objects_and_errors(&file);
        self.file.publish(&file).await;
        self.http.publish(&http).await;
    }

    fn publish_objects_and_errors(&self, file: &MergedPods) {
        let errors = self.file.errors().iter().chain(self.http.errors());
        let errors: Vec<ManifestError> = errors.cloned().collect();
        let objects_synced = self.file.can_publish();
        self.published.send_if_modified(|published| {
            let same_objects = *published.objects == file.objects;
            let changed = !same_objects
                || published.errors != errors
                || published.objects_synced != objects_synced;
            if changed {
                let objects = if same_objects {
                    published.objects.clone()
                } else {
                    Arc::new(file.objects.clone())
                };
                *published = Published {
                    errors,
                    objects,
                    objects_synced,
                };
            }
            changed
        });
    }
}
