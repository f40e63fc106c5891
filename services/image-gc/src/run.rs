//! The event loop: inspects the runtime, removes images and publishes what is left.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use polylet_kit::state_file::{RetriedFile, StateFile, StateFileError};
use polylet_kit::{Ctx, cause, report};
use polylet_model::PodUid;
use polylet_watch::{Store, Update};
use polylet_wire::imagegc::v1::{Image, ReclaimRequest, ReclaimResponse};
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::Config;
use crate::core::messages;
use crate::core::plan::ImageRemoval;
use crate::core::records::{ImageRecords, ImageSnapshot};
use crate::input::{Input, ReclaimCall};
use crate::manager::ImageGcManager;
use crate::metrics;
use crate::runtime::{self, ImageFsProbe, InspectError};
use crate::{convert, sources};

/// Upstream's garbage collection period.
const PERIOD: Duration = Duration::from_secs(300);
/// Upstream's period for the images in the node's status.
const LIST_PERIOD: Duration = Duration::from_secs(30);
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(60);
/// Version of the format of `ages.json`.
pub(crate) const RECORDS_VERSION: u32 = 1;

/// The state of the event loop.
pub(crate) struct EventLoop {
    ctx: Ctx,
    runtime: RuntimeClient,
    manager: ImageGcManager,
    records_file: RetriedFile<ImageRecords>,
    store: Store<String, Image>,
    reclaim_calls: mpsc::Receiver<ReclaimCall>,
    image_fs: ImageFsProbe,
    /// The uses of images when they were last inspected.
    last: ImageSnapshot,
    /// The last attempt to get the usage of the image file system failed.
    failed: bool,
}

impl EventLoop {
    /// Loads the stored records.
    pub(crate) fn new(
        ctx: Ctx,
        config: &Config,
        store: Store<String, Image>,
        reclaim_calls: mpsc::Receiver<ReclaimCall>,
    ) -> Result<Self, StateFileError> {
        let records_file = StateFile::new(ctx.state_dir().join("ages.json"), RECORDS_VERSION);
        let records = records_file
            .restore("image ages start over")?
            .unwrap_or_default();
        Ok(Self {
            runtime: RuntimeClient::connect(&config.runtime_endpoint, RUNTIME_TIMEOUT),
            manager: ImageGcManager::new(config.policy, records),
            records_file: RetriedFile::new(records_file),
            store,
            ctx,
            reclaim_calls,
            image_fs: ImageFsProbe::default(),
            last: ImageSnapshot::default(),
            failed: false,
        })
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut pods = select_all(sources::all(&self.ctx));
        let mut timer = tokio::time::interval(PERIOD);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut list_timer = tokio::time::interval_at(Instant::now() + LIST_PERIOD, LIST_PERIOD);
        list_timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(input) = pods.next() => input,
                Some(call) = self.reclaim_calls.recv() => Input::Reclaim(call),
                _ = timer.tick() => Input::Timer,
                _ = list_timer.tick() => Input::ListTimer,
            };
            self.handle_input(input).await;
        }
    }

    async fn handle_input(&mut self, input: Input) {
        match input {
            Input::Pod(source, update) => {
                let had_synced = self.manager.has_synced();
                self.handle_pod(source, *update);
                // Nothing could be removed until now.
                if !had_synced && self.manager.has_synced() {
                    self.collect_garbage().await;
                }
            }
            Input::Reclaim(call) => {
                let result = self.reclaim(&call.request).await;
                // The caller may have cancelled.
                let _ = call.response.send(result);
            }
            Input::Timer => self.collect_garbage().await,
            Input::ListTimer => {
                self.save_records(false);
                self.publish_images().await;
            }
        }
    }

    fn handle_pod(&mut self, source: PodSource, update: Update<PodUid, Pod>) {
        let trace = match &update {
            Update::Upsert(_, pod) => Some((pod.r#ref.clone().unwrap_or_default(), &pod.cause)),
            _ => None,
        };
        let trace = trace.map(|(pod, cause)| (pod, cause.clone()));
        let images = self.manager.handle_pod(source, update);
        if let Some((images, (pod, cause))) = images.zip(trace) {
            // The images are protected from now on: part of the pod's start.
            let span = tracing::info_span!(
                "imagegc.protect",
                k8s.pod.uid = pod.uid,
                k8s.pod.name = pod.name,
                k8s.namespace.name = pod.namespace,
                polylet.image.count = images,
            );
            cause::follow(&span, cause.as_ref());
        }
    }

    /// Lists images and their uses, stores the records and publishes the images.
    async fn update(&mut self) -> Result<ImageSnapshot, InspectError> {
        let (images, references) = runtime::list(&self.runtime).await?;
        let previous = self.manager.records().clone();
        let snapshot = self.manager.update(images, references, Timestamp::now());
        self.save_records(*self.manager.records() != previous);
        self.publish(&snapshot);
        self.last = snapshot.clone();
        Ok(snapshot)
    }

    /// Saves the records if they have changed, or could not be saved before.
    fn save_records(&mut self, changed: bool) {
        let records = self.manager.records();
        if let Err(error) = self.records_file.save_changed(changed, records) {
            tracing::warn!(error = report(&error), "failed to save image ages");
        }
    }

    fn publish(&self, snapshot: &ImageSnapshot) {
        let items = snapshot
            .images
            .iter()
            .map(|image| (image.id.clone(), convert::image(snapshot, image)));
        self.store.replace(items);
        self.store.mark_synced();
    }

    /// Publishes the present images, with the uses of the last inspection. Decides nothing.
    async fn publish_images(&mut self) {
        match runtime::list_images(&self.runtime).await {
            Ok(images) => {
                self.last.images = images;
                self.publish(&self.last);
            }
            Err(error) => {
                let error = report(&error);
                tracing::debug!(error, "failed to list images; keeping the last list");
            }
        }
    }

    async fn collect_garbage(&mut self) {
        let snapshot = match self.update().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::warn!(
                    error = report(&error),
                    "failed to inspect images; skipping garbage collection"
                );
                return;
            }
        };
        if self.manager.policy().is_disabled() || !self.manager.has_synced() {
            return;
        }
        let now = Timestamp::now();
        let old = self.manager.exceeding_maximum_age(&snapshot, now);
        self.remove_all(old, true).await;
        let usage = match self.image_fs.usage(&self.runtime).await {
            Ok(usage) => usage,
            Err(error) => {
                let error = report(&error);
                tracing::warn!(error, "failed to get the usage of the image file system");
                // A single failure may be a runtime that is still starting.
                if std::mem::replace(&mut self.failed, true) {
                    self.warn_node("ImageGCFailed", error);
                }
                return;
            }
        };
        self.failed = false;
        if usage.capacity == 0 {
            let message = "invalid capacity 0 on image filesystem";
            self.warn_node("InvalidDiskCapacity", message);
            return;
        }
        let (removals, bytes) = self.manager.over_threshold(&snapshot, usage, now);
        if bytes == 0 {
            return;
        }
        let freed = self.remove_all(removals, false).await.bytes_freed;
        if freed < bytes {
            tracing::warn!(
                bytes,
                freed,
                "failed to free enough space; too few unused images"
            );
            let message = messages::free_disk_space_failed(usage, freed);
            self.warn_node("FreeDiskSpaceFailed", message);
        }
    }

    fn warn_node(&self, reason: &str, message: impl Into<String>) {
        let notices = self.ctx.notices();
        notices.node(Severity::Warning, reason, message);
    }

    async fn reclaim(&mut self, request: &ReclaimRequest) -> Result<ReclaimResponse, String> {
        if !self.manager.has_synced() {
            return Err("not all pod sources have synced".to_owned());
        }
        let snapshot = self.update().await.map_err(|error| report(&error))?;
        let minimum_age = if request.ignore_minimum_age {
            Duration::ZERO
        } else {
            self.manager.policy().minimum_age
        };
        let finished = &request.finished_pod_uids;
        let snapshot = self.manager.without_pods(snapshot, finished);
        let (bytes, now) = (request.bytes_to_free, Timestamp::now());
        let removals = self.manager.reclaim(&snapshot, bytes, minimum_age, now);
        Ok(self.remove_all(removals, false).await)
    }

    /// Removes one image after the other, for their age or for space. A failure does not affect the others.
    async fn remove_all(&mut self, removals: Vec<ImageRemoval>, for_age: bool) -> ReclaimResponse {
        let mut response = ReclaimResponse::default();
        for ImageRemoval { id, size_bytes } in removals {
            match runtime::remove(&self.runtime, &id).await {
                Ok(()) => {
                    tracing::info!(image = id, bytes = size_bytes, "removed unused image");
                    metrics::count_removal(for_age);
                    self.store.remove(&id);
                    self.manager.on_removed(&id);
                    response.bytes_freed = response.bytes_freed.saturating_add(size_bytes);
                    response.images_removed += 1;
                }
                Err(error) => {
                    let error = report(&error);
                    tracing::warn!(image = id, error, "failed to remove image");
                }
            }
        }
        response
    }
}
