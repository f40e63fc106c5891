//! The one task: pods, requests and a slow timer come in; images go.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use jiff::Timestamp;
use polylet_cri::Runtime;
use polylet_kit::{Ctx, cause, follow, kept};
use polylet_model::pod::Manifest;
use polylet_watch::{Store, Update};
use polylet_wire::imagegc::v1::{Image, ReclaimRequest, ReclaimResponse};
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use tokio::sync::{mpsc, oneshot};

use crate::convert;
use crate::core::plan::{Policy, Removal};
use crate::core::records::{Look, Records};
use crate::core::words;
use crate::desk::Desk;
use crate::runtime;

/// How often images are looked at: upstream's detection and collection period.
const PASS: Duration = Duration::from_secs(300);
const RUNTIME_DEADLINE: Duration = Duration::from_secs(60);
const KEPT_VERSION: u32 = 1;

/// Somebody wants room.
pub(crate) struct Question {
    pub(crate) request: ReclaimRequest,
    pub(crate) answer: oneshot::Sender<Result<ReclaimResponse, String>>,
}

enum Input {
    Pods(PodSource, Update<String, Pod>),
    Question(Question),
    Pass,
}

/// The task's state.
pub(crate) struct Run {
    ctx: Ctx,
    runtime: Runtime,
    desk: Desk,
    path: PathBuf,
    store: Store<String, Image>,
    questions: mpsc::Receiver<Question>,
    /// The last look at the disk came to nothing.
    failed: bool,
}

impl Run {
    /// Reads the kept ages.
    pub(crate) fn new(ctx: Ctx, questions: mpsc::Receiver<Question>) -> Self {
        let kubelet = &ctx.config().kubelet;
        let percent = |value: i32| u8::try_from(value.clamp(0, 100)).unwrap_or(100);
        let policy = Policy {
            high_percent: percent(kubelet.image_gc_high_threshold_percent),
            low_percent: percent(kubelet.image_gc_low_threshold_percent),
            minimum_age: kubelet.image_minimum_gc_age,
            maximum_age: kubelet.image_maximum_gc_age,
        };
        let path = ctx.state_dir().join("ages.json");
        let without = "ages of images start anew";
        let records: Option<Records> = kept::load_or_set_aside(&path, KEPT_VERSION, without);
        let endpoint = kubelet.image_endpoint().to_owned();
        Self {
            runtime: Runtime::connect(&endpoint, RUNTIME_DEADLINE),
            desk: Desk::new(policy, records.unwrap_or_default()),
            path,
            store: Store::new(ctx.incarnation()),
            ctx,
            questions,
            failed: false,
        }
    }

    /// What the server serves.
    pub(crate) fn store(&self) -> Store<String, Image> {
        self.store.clone()
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        let pods = follow::podconfig::SOURCES.map(|source| {
            let pods = follow::podconfig::pods(&self.ctx, source);
            pods.map(move |update| Input::Pods(source, update)).boxed()
        });
        let mut pods = select_all(pods);
        let mut passes = tokio::time::interval(PASS);
        passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(input) = pods.next() => input,
                Some(question) = self.questions.recv() => Input::Question(question),
                _ = passes.tick() => Input::Pass,
            };
            match input {
                Input::Pods(source, update) => {
                    let before = self.desk.all_heard();
                    self.take_pod(source, update);
                    // Nothing could go until now: what there is to do need not wait for the timer.
                    if !before && self.desk.all_heard() {
                        self.pass().await;
                    }
                }
                Input::Question(question) => self.answer(question).await,
                Input::Pass => self.pass().await,
            }
        }
    }

    fn take_pod(&mut self, source: PodSource, update: Update<String, Pod>) {
        let pod = match &update {
            Update::Upsert(_, pod) => Some(pod.clone()),
            _ => None,
        };
        let spared = self.desk.pod(source, update);
        if let Some(((manifest, images), pod)) = spared.zip(pod) {
            note_spared(&manifest, &images, &pod);
        }
    }

    /// Looks at the runtime, brings ages and stream up to date.
    async fn look(&mut self) -> Result<Look, runtime::LookError> {
        let (images, used) = runtime::look(&self.runtime).await?;
        let before = self.desk.records().clone();
        let look = self.desk.look(images, used, Timestamp::now());
        if *self.desk.records() != before
            && let Err(error) = kept::save(&self.path, KEPT_VERSION, self.desk.records())
        {
            tracing::warn!(
                error = polylet_kit::report(&error),
                "ages of images are not kept"
            );
        }
        let items = look
            .images
            .iter()
            .map(|image| (image.id.clone(), convert::item(&look, image)));
        self.store.replace(items);
        self.store.mark_whole();
        Ok(look)
    }

    async fn pass(&mut self) {
        let look = match self.look().await {
            Ok(look) => look,
            Err(error) => {
                tracing::warn!(
                    error = polylet_kit::report(&error),
                    "images cannot be looked at"
                );
                return;
            }
        };
        if self.desk.policy.is_off() || !self.desk.all_heard() {
            return;
        }
        let now = Timestamp::now();
        let old = self.desk.too_old(&look, now);
        self.remove_all(old).await;
        let disk = match runtime::disk(&self.runtime).await {
            Ok(disk) => disk,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "image room is not known");
                // Once may be a runtime that is not up yet.
                if std::mem::replace(&mut self.failed, true) {
                    let notices = self.ctx.notices();
                    notices.of_node(Severity::Warning, "ImageGCFailed", error);
                }
                return;
            }
        };
        self.failed = false;
        if disk.capacity == 0 {
            let words = "invalid capacity 0 on image filesystem";
            let notices = self.ctx.notices();
            notices.of_node(Severity::Warning, "InvalidDiskCapacity", words);
            return;
        }
        let (room, over) = self.desk.too_much(&look, disk, now);
        if over == 0 {
            return;
        }
        let freed = self.remove_all(room).await.bytes_freed;
        if freed < over {
            tracing::warn!(
                wanted = over,
                freed,
                "not enough unused images to come below the threshold"
            );
            self.ctx.notices().of_node(
                Severity::Warning,
                "FreeDiskSpaceFailed",
                words::not_enough(disk, freed),
            );
        }
    }

    async fn answer(&mut self, question: Question) {
        let result = self.reclaim(&question.request).await;
        // Whoever asked may have given up; the room is made all the same.
        let _ = question.answer.send(result);
    }

    async fn reclaim(&mut self, request: &ReclaimRequest) -> Result<ReclaimResponse, String> {
        if !self.desk.all_heard() {
            return Err("not all pod sources have spoken yet".to_owned());
        }
        let look = self
            .look()
            .await
            .map_err(|error| polylet_kit::report(&error))?;
        let minimum_age = if request.ignore_minimum_age {
            Duration::ZERO
        } else {
            self.desk.policy.minimum_age
        };
        let (wanted, now) = (request.bytes_wanted, Timestamp::now());
        let room = self.desk.asked_for(&look, wanted, minimum_age, now);
        Ok(self.remove_all(room).await)
    }

    /// Removes one after the other; an image that cannot be removed holds back no other.
    async fn remove_all(&mut self, removals: Vec<Removal>) -> ReclaimResponse {
        let mut done = ReclaimResponse::default();
        for removal in removals {
            match runtime::remove(&self.runtime, &removal.id).await {
                Ok(()) => {
                    tracing::info!(
                        image = removal.id,
                        bytes = removal.size_bytes,
                        "removed an unused image"
                    );
                    self.store.remove(&removal.id);
                    self.desk.removed(&removal.id);
                    done.bytes_freed = done.bytes_freed.saturating_add(removal.size_bytes);
                    done.images_removed += 1;
                }
                Err(error) => {
                    tracing::warn!(
                        image = removal.id,
                        error = polylet_kit::report(&error),
                        "the image stays"
                    );
                }
            }
        }
        done
    }
}

/// From here on the pod's images are spared: part of its start.
fn note_spared(manifest: &Manifest, images: &[String], pod: &Pod) {
    let span = tracing::info_span!(
        "imagegc.spare",
        k8s.pod.uid = manifest.uid().as_str(),
        k8s.pod.name = manifest.name(),
        k8s.namespace.name = manifest.namespace(),
        images = images.len(),
    );
    cause::set_parent(&span, pod.cause.as_ref());
}
