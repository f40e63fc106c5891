//! Measures the files of pods in child processes, a few pods each. A pod whose files do not answer is
//! measured alone, and then not again for a while: it delays nobody else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt, stream};
use polylet_kit::subprocess::{SubprocessError, SubprocessPool};
use polylet_kit::{CancellationToken, HealthConditions, Notices, report};
use polylet_wire::common::v1::PodRef;

use crate::sample::disk_usage::{DiskUsageTask, MountedSpaceTask, PodDiskUsage, PodPaths};
use crate::sample::filesystem::Filesystem;

/// Pods of one child.
const PODS_PER_CHILD: usize = 16;
/// Children at once.
const CHILDREN: usize = 2;
/// How long a pod or volume that did not answer is not measured again.
const PAUSE: Duration = Duration::from_secs(60);
/// The reasons of health conditions, and of the pods' events.
const POD_NOT_MEASURED: &str = "PodNotMeasured";
const VOLUME_NOT_RESPONDING: &str = "VolumeNotResponding";

/// A pod to be measured.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredPod {
    pub(crate) pod: PodRef,
    pub(crate) paths: PodPaths,
}

/// The measured pods by uid. One that could not be measured is missing.
pub(crate) type DiskUsages = BTreeMap<String, PodDiskUsage>;

/// No child process could be started: nothing is known about any pod.
#[derive(Debug, thiserror::Error)]
#[error("failed to measure the disk usage of pods")]
pub(crate) struct DiskUsageError(#[source] SubprocessError);

/// The child processes; something else in tests.
pub(crate) trait DiskChildren {
    /// Measures directories. `pod` is the uid of the pod, if it is only one.
    fn disk_usage(&self, task: DiskUsageTask, pod: Option<String>)
    -> MeasurementFuture<DiskUsages>;

    /// Measures a mounted file system.
    fn mounted_space(
        &self,
        task: MountedSpaceTask,
        pod: String,
    ) -> MeasurementFuture<Result<Filesystem, String>>;

    /// Emits an event of a pod.
    fn warn(&self, pod: &PodRef, reason: &'static str, message: &str);
}

pub(crate) type MeasurementFuture<T> = LocalBoxFuture<'static, Result<T, SubprocessError>>;

/// Child processes of this service.
pub(crate) struct ServiceChildren {
    pub(crate) pool: SubprocessPool,
    pub(crate) notices: Notices,
}

impl DiskChildren for ServiceChildren {
    fn disk_usage(
        &self,
        task: DiskUsageTask,
        pod: Option<String>,
    ) -> MeasurementFuture<DiskUsages> {
        let pool = self.pool.clone();
        async move {
            let never = CancellationToken::new();
            pool.run(&task, pod.as_deref(), &never).await
        }
        .boxed_local()
    }

    fn mounted_space(
        &self,
        task: MountedSpaceTask,
        pod: String,
    ) -> MeasurementFuture<Result<Filesystem, String>> {
        let pool = self.pool.clone();
        async move { pool.run(&task, Some(&pod), &CancellationToken::new()).await }.boxed_local()
    }

    fn warn(&self, pod: &PodRef, reason: &'static str, message: &str) {
        self.notices.warning(pod, "", reason, message);
    }
}

/// Measures pods. Clones share what is known about those that do not answer.
#[derive(Clone)]
pub(crate) struct DiskMeasurer {
    children: Rc<dyn DiskChildren>,
    conditions: HealthConditions,
    /// Until when pods (by uid) and volumes (by path) are left out, and the object of the condition.
    silent: Rc<RefCell<BTreeMap<String, Silent>>>,
}

#[derive(Clone, Debug)]
struct Silent {
    until: Instant,
    reason: &'static str,
    object: String,
}

impl DiskMeasurer {
    pub(crate) fn new(children: Rc<dyn DiskChildren>, conditions: HealthConditions) -> Self {
        Self {
            children,
            conditions,
            silent: Rc::default(),
        }
    }

    /// Measures pods, within this time plus that of those that do not answer.
    ///
    /// # Errors
    /// When no child process can be started.
    pub(crate) async fn measure(
        &self,
        purpose: &'static str,
        pods: Vec<MeasuredPod>,
        budget: Duration,
    ) -> Result<DiskUsages, DiskUsageError> {
        let answering: Vec<MeasuredPod> = pods
            .into_iter()
            .filter(|pod| !self.is_silent(&pod.paths.uid))
            .collect();
        let children = answering.len().div_ceil(PODS_PER_CHILD);
        let rounds = u32::try_from(children.div_ceil(CHILDREN)).unwrap_or(u32::MAX);
        let budget = budget / rounds.max(1);
        let chunks = answering.chunks(PODS_PER_CHILD);
        let measured: Vec<Result<DiskUsages, DiskUsageError>> = stream::iter(chunks)
            .map(|chunk| self.measure_together(purpose, chunk, budget))
            .buffer_unordered(CHILDREN)
            .collect()
            .await;
        let mut usages = DiskUsages::new();
        for chunk in measured {
            usages.extend(chunk?);
        }
        Ok(usages)
    }

    async fn measure_together(
        &self,
        purpose: &'static str,
        pods: &[MeasuredPod],
        budget: Duration,
    ) -> Result<DiskUsages, DiskUsageError> {
        match self.run(purpose, pods, budget).await {
            Ok(usages) => {
                pods.iter().for_each(|pod| self.forget(&pod.paths.uid));
                return Ok(usages);
            }
            Err(SubprocessError::Start(error)) => {
                return Err(DiskUsageError(SubprocessError::Start(error)));
            }
            // One of them.
            Err(_) => {}
        }
        let mut usages = DiskUsages::new();
        for pod in pods {
            match self.run(purpose, std::slice::from_ref(pod), budget).await {
                Ok(usage) => {
                    self.forget(&pod.paths.uid);
                    usages.extend(usage);
                }
                Err(error) => self.record_silent(pod, &error),
            }
        }
        Ok(usages)
    }

    async fn run(
        &self,
        purpose: &'static str,
        pods: &[MeasuredPod],
        budget: Duration,
    ) -> Result<DiskUsages, SubprocessError> {
        let task = DiskUsageTask {
            purpose: purpose.to_owned(),
            budget,
            pods: pods.iter().map(|pod| pod.paths.clone()).collect(),
        };
        let pod = match pods {
            [one] => Some(one.paths.uid.clone()),
            _ => None,
        };
        self.children.disk_usage(task, pod).await
    }

    /// The space of a file system that is mounted as a volume; `None` when it does not answer.
    pub(crate) async fn mounted_space(
        &self,
        pod: &PodRef,
        volume: &str,
        path: PathBuf,
    ) -> Option<Filesystem> {
        let key = path.display().to_string();
        if self.is_silent(&key) {
            return None;
        }
        let task = MountedSpaceTask { path };
        let output = self.children.mounted_space(task, pod.uid.clone()).await;
        let error = match output {
            Ok(Ok(filesystem)) => {
                self.forget(&key);
                return Some(filesystem);
            }
            Ok(Err(error)) => error,
            // Says nothing about the volume.
            Err(SubprocessError::Start(_) | SubprocessError::Busy) => return None,
            Err(error) => report(&error),
        };
        let object = format!("{}/{}/{volume}", pod.namespace, pod.name);
        let message = format!("statvfs of volume {volume}: {error}; its usage is unknown");
        self.add_silent(&key, VOLUME_NOT_RESPONDING, object, pod, &message);
        None
    }

    /// Forgets a pod or volume that answers again, or that is gone.
    pub(crate) fn forget(&self, key: &str) {
        if let Some(silent) = self.silent.borrow_mut().remove(key) {
            self.conditions.clear(silent.reason, silent.object);
        }
    }

    /// Forgets everything about pods that are gone.
    pub(crate) fn retain_pods(&self, is_known: impl Fn(&str) -> bool) {
        let uid = |key: &str| {
            let below = key.split_once("/pods/").map_or(key, |(_, below)| below);
            below.split('/').next().unwrap_or(below).to_owned()
        };
        self.retain(|key, _| is_known(&uid(key)));
    }

    /// Forgets volumes that are no longer mounted.
    pub(crate) fn retain_volumes(&self, is_mounted: impl Fn(&str) -> bool) {
        self.retain(|key, silent| silent.reason != VOLUME_NOT_RESPONDING || is_mounted(key));
    }

    fn retain(&self, stays: impl Fn(&str, &Silent) -> bool) {
        self.silent.borrow_mut().retain(|key, silent| {
            let stays = stays(key, silent);
            if !stays {
                self.conditions.clear(silent.reason, &silent.object);
            }
            stays
        });
    }

    fn is_silent(&self, key: &str) -> bool {
        let silent = self.silent.borrow();
        silent
            .get(key)
            .is_some_and(|silent| Instant::now() < silent.until)
    }

    fn record_silent(&self, pod: &MeasuredPod, error: &SubprocessError) {
        let object = format!("{}/{}", pod.pod.namespace, pod.pod.name);
        let message = format!("disk usage is unknown: {}", report(error));
        self.add_silent(&pod.paths.uid, POD_NOT_MEASURED, object, &pod.pod, &message);
    }

    fn add_silent(
        &self,
        key: &str,
        reason: &'static str,
        object: String,
        pod: &PodRef,
        message: &str,
    ) {
        let silent = Silent {
            until: Instant::now() + PAUSE,
            reason,
            object: object.clone(),
        };
        let is_new = self
            .silent
            .borrow_mut()
            .insert(key.to_owned(), silent)
            .is_none();
        self.conditions.set(reason, object, message);
        if is_new {
            self.children.warn(pod, reason, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Children that never answer for the pod `hung`.
    #[derive(Default)]
    struct FakeChildren {
        tasks: RefCell<Vec<Vec<String>>>,
        events: RefCell<Vec<(String, &'static str)>>,
    }

    impl DiskChildren for FakeChildren {
        fn disk_usage(
            &self,
            task: DiskUsageTask,
            _pod: Option<String>,
        ) -> MeasurementFuture<DiskUsages> {
            let uids: Vec<String> = task.pods.into_iter().map(|pod| pod.uid).collect();
            self.tasks.borrow_mut().push(uids.clone());
            let answer = match uids.iter().any(|uid| uid == "hung") {
                true => Err(SubprocessError::Deadline(5)),
                false => Ok(uids.into_iter().map(|uid| (uid, PodDiskUsage::default()))),
            };
            std::future::ready(answer.map(Iterator::collect)).boxed_local()
        }

        fn mounted_space(
            &self,
            _task: MountedSpaceTask,
            _pod: String,
        ) -> MeasurementFuture<Result<Filesystem, String>> {
            std::future::ready(Err(SubprocessError::Deadline(5))).boxed_local()
        }

        fn warn(&self, pod: &PodRef, reason: &'static str, _message: &str) {
            self.events.borrow_mut().push((pod.name.clone(), reason));
        }
    }

    fn pod(uid: &str) -> MeasuredPod {
        MeasuredPod {
            pod: PodRef {
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                name: uid.to_owned(),
            },
            paths: PodPaths {
                uid: uid.to_owned(),
                paths: Vec::new(),
            },
        }
    }

    #[tokio::test]
    async fn a_pod_that_does_not_answer_hides_no_other_and_is_named() {
        let children = Rc::new(FakeChildren::default());
        let conditions = HealthConditions::default();
        let measurer = DiskMeasurer::new(children.clone(), conditions.clone());
        let mut pods: Vec<MeasuredPod> = (0..40).map(|n| pod(&format!("p{n}"))).collect();
        pods.insert(20, pod("hung"));
        let measure = || measurer.measure("test", pods.clone(), Duration::from_secs(1));
        let usages = measure().await.unwrap();
        assert_eq!(usages.len(), 40);
        assert!(!usages.contains_key("hung"));
        let named = |reason: &str| {
            let all = conditions.to_wire();
            all.iter().any(|condition| condition.reason == reason)
        };
        assert!(named(POD_NOT_MEASURED));
        assert_eq!(
            *children.events.borrow(),
            [("hung".to_owned(), POD_NOT_MEASURED)]
        );
        // It is left alone for a while, and costs no time.
        children.tasks.borrow_mut().clear();
        assert_eq!(measure().await.unwrap().len(), 40);
        assert_eq!(children.tasks.borrow().len(), 3);
        measurer.retain_pods(|uid| uid != "hung");
        assert!(!named(POD_NOT_MEASURED));
    }

    #[tokio::test]
    async fn a_volume_that_does_not_answer_is_named_once() {
        let children = Rc::new(FakeChildren::default());
        let conditions = HealthConditions::default();
        let measurer = DiskMeasurer::new(children.clone(), conditions.clone());
        let path = PathBuf::from("/var/lib/polylet/pods/u/volumes/kubernetes.io~nfs/data");
        for _ in 0..3 {
            let pod = pod("u").pod;
            let space = measurer.mounted_space(&pod, "data", path.clone());
            assert_eq!(space.await, None);
        }
        assert_eq!(children.events.borrow().len(), 1);
        let condition = conditions.to_wire().remove(0);
        assert_eq!(condition.reason, VOLUME_NOT_RESPONDING);
        assert_eq!(condition.object, "default/u/data");
        measurer.retain_pods(|uid| uid == "u");
        measurer.retain_volumes(|mounted| path.as_os_str() == mounted);
        assert_eq!(conditions.to_wire().len(), 1);
        measurer.retain_volumes(|_| false);
        assert!(conditions.to_wire().is_empty());
    }
}
