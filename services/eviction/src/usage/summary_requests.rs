//! Answers requests for the stats summary and its metrics, apart from the task that decides: one measurement at a time
//! serves everybody who waits, and nothing is measured for callers that have gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_model::PodUid;
use tokio::sync::{mpsc, oneshot};

use super::cadvisor::CadvisorJob;
use super::disk::{DiskUsages, MeasuredPod};
use super::summary::{SummaryJob, SummaryPod, summary_paths};
use super::{Sampler, image_usage, pod_ref, volume_dirs};
use crate::core::exposition::{cadvisor, resource};
use crate::core::pods::NodePods;
use crate::core::summary::render;
use crate::sample::cgroup_stats::Detail;
use crate::sample::filesystem::Filesystem;

/// The time to walk the files of all pods: those with more files have at least what was found.
const WALK_BUDGET: Duration = Duration::from_secs(15);
/// The longest time of a measurement. Callers get an error then, never a summary without content.
const DEADLINE: Duration = Duration::from_secs(40);
/// Mounted volumes that are measured at once.
const MOUNTED_AT_ONCE: usize = 4;

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SummaryError {
    #[error("measuring the node took longer than {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("measuring the node failed: {0}")]
    Failed(String),
    #[error("eviction is shutting down")]
    Stopping,
}

/// What callers may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UsageReport {
    /// The summary as JSON.
    Summary,
    /// The summary without files and networks.
    CpuAndMemory,
    /// The same as metrics.
    ResourceMetrics,
    /// All cgroups as metrics.
    CadvisorMetrics,
}

/// A call of `GetSummary` or `GetExposition`.
pub(crate) struct SummaryRequest {
    pub(crate) report: UsageReport,
    /// A report of this time or later may be reused.
    pub(crate) not_older_than: Option<Timestamp>,
    /// Receives the report and its time.
    pub(crate) response: oneshot::Sender<Result<TimedReport, SummaryError>>,
}

/// A report and when its measurement was begun.
pub(crate) type TimedReport = (Timestamp, Bytes);

/// The requests, and the last report of each kind.
pub(crate) struct SummaryRequests {
    sampler: Sampler,
    node_name: String,
    /// To the event loop, which has the pods.
    pods: mpsc::Sender<oneshot::Sender<NodePods>>,
    waiting: BTreeMap<UsageReport, Waiting>,
}

/// The callers of one kind of report, and its last result.
#[derive(Default)]
struct Waiting {
    requests: Vec<SummaryRequest>,
    /// When the measurement in flight was begun.
    in_flight: Option<Timestamp>,
    last: Option<TimedReport>,
}

impl SummaryRequests {
    pub(crate) fn new(
        sampler: Sampler,
        node_name: &str,
        pods: mpsc::Sender<oneshot::Sender<NodePods>>,
    ) -> Self {
        Self {
            sampler,
            node_name: node_name.to_owned(),
            pods,
            waiting: BTreeMap::new(),
        }
    }

    /// Runs until `drain` is cancelled.
    pub(crate) async fn run(
        mut self,
        mut requests: mpsc::Receiver<SummaryRequest>,
        drain: CancellationToken,
    ) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                Some(request) = requests.recv() => {
                    let kind = request.report;
                    let waiting = self.waiting.entry(kind).or_default();
                    waiting.add(request);
                    if let Some(at) = waiting.begin(Timestamp::now()) {
                        in_flight.push(self.measure(kind, at));
                    }
                }
                Some((kind, at, result)) = in_flight.next() => {
                    let waiting = self.waiting.entry(kind).or_default();
                    waiting.finish(at, result);
                    if let Some(at) = waiting.begin(Timestamp::now()) {
                        in_flight.push(self.measure(kind, at));
                    }
                }
            }
        }
    }

    fn measure(
        &self,
        report: UsageReport,
        at: Timestamp,
    ) -> impl Future<Output = (UsageReport, Timestamp, Result<Bytes, SummaryError>)> + use<> {
        let (sampler, pods, name) = (
            self.sampler.clone(),
            self.pods.clone(),
            self.node_name.clone(),
        );
        async move {
            let measure = measure(&sampler, &pods, name, at, report);
            let result = tokio::time::timeout(DEADLINE, measure).await;
            let result = result.unwrap_or(Err(SummaryError::Deadline));
            if let Err(error) = &result {
                let error = polylet_kit::report(error);
                tracing::warn!(?report, error, "failed to measure the node");
            }
            (report, at, result)
        }
    }
}

impl Waiting {
    /// Answers a request with the last summary, or lets it wait for the next one.
    fn add(&mut self, request: SummaryRequest) {
        if let (Some(oldest), Some((at, summary))) = (request.not_older_than, &self.last)
            && *at >= oldest
        {
            // The caller may have gone.
            let _ = request.response.send(Ok((*at, summary.clone())));
            return;
        }
        self.requests.push(request);
    }

    /// When a measurement begins, if one is needed and none is in flight.
    fn begin(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.requests
            .retain(|request| !request.response.is_closed());
        if self.in_flight.is_some() || self.requests.is_empty() {
            return None;
        }
        self.in_flight = Some(now);
        self.in_flight
    }

    /// Answers all requests that a measurement is recent enough for.
    fn finish(&mut self, at: Timestamp, result: Result<Bytes, SummaryError>) {
        self.in_flight = None;
        let is_recent =
            |request: &SummaryRequest| request.not_older_than.is_none_or(|oldest| at >= oldest);
        let requests = std::mem::take(&mut self.requests);
        let (answered, others) = requests.into_iter().partition(is_recent);
        self.requests = others;
        for request in answered {
            let answer = result.clone().map(|summary| (at, summary));
            let _ = request.response.send(answer);
        }
        if let Ok(summary) = result {
            self.last = Some((at, summary));
        }
    }
}

async fn measure(
    sampler: &Sampler,
    pods: &mpsc::Sender<oneshot::Sender<NodePods>>,
    node_name: String,
    at: Timestamp,
    report: UsageReport,
) -> Result<Bytes, SummaryError> {
    let (sender, receiver) = oneshot::channel();
    let stopping = SummaryError::Stopping;
    pods.send(sender).await.map_err(|_| stopping.clone())?;
    let pods = summary_pods(&receiver.await.map_err(|_| stopping)?);
    if report == UsageReport::CadvisorMetrics {
        let job = CadvisorJob::prepare(sampler, pods).await;
        return blocking(move || Ok(cadvisor::render(&job.run(Timestamp::now())).into())).await;
    }
    let mut job = SummaryJob {
        at,
        node_name,
        mounts: sampler.pods.mounts.clone(),
        paths: sampler.pods.paths.clone(),
        filesystems: Default::default(),
        layers: Default::default(),
        rates: sampler.rates.clone(),
        pods,
        detail: match report {
            UsageReport::ResourceMetrics => Detail::Basic,
            _ => Detail::Summary,
        },
        with_files: report == UsageReport::Summary,
        images: None,
        disk: DiskUsages::new(),
        mounted: BTreeMap::new(),
        volumes: Default::default(),
    };
    if job.with_files {
        measure_files(sampler, &mut job).await?;
    }
    blocking(move || {
        let summary = job.run(Timestamp::now());
        match report {
            UsageReport::ResourceMetrics => Ok(resource::render(&summary).into()),
            _ => {
                let json = render(&summary, report == UsageReport::CpuAndMemory);
                let json = serde_json::to_vec(&json);
                let json = json.map_err(|error| SummaryError::Failed(error.to_string()))?;
                Ok(json.into())
            }
        }
    })
    .await
}

/// Reads cgroups, which always answer, and renders the result beside the event loop.
async fn blocking(
    work: impl FnOnce() -> Result<Bytes, SummaryError> + Send + 'static,
) -> Result<Bytes, SummaryError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(SummaryError::Failed(error.to_string())))
}

fn summary_pods(pods: &NodePods) -> Vec<SummaryPod> {
    let pod = |(uid, pod): (&PodUid, &crate::core::pods::RuntimePod)| SummaryPod {
        uid: uid.to_string(),
        spec: pods.specs.get(uid).cloned(),
        pod: pod.clone(),
        volumes: None,
    };
    pods.running().map(pod).collect()
}

async fn measure_files(sampler: &Sampler, job: &mut SummaryJob) -> Result<(), SummaryError> {
    let paths = sampler.pods.paths.clone();
    let uids: Vec<String> = job.pods.iter().map(|pod| pod.uid.clone()).collect();
    let mut lister = sampler.volume_lister.lock().await;
    let list = move || volume_dirs::list(&paths, uids);
    let mut volumes = lister.run(&sampler.pods.conditions, list).await;
    drop(lister);
    for pod in &mut job.pods {
        pod.volumes = volumes.remove(&pod.uid);
    }
    let measured = job.pods.iter().map(|pod| MeasuredPod {
        pod: pod_ref(&pod.uid, &pod.pod),
        paths: summary_paths(&sampler.pods.paths, &pod.uid, &pod.pod, pod.volumes()),
    });
    let disk = sampler
        .pods
        .disk
        .measure("summary", measured.collect(), WALK_BUDGET);
    let filesystems = async { sampler.observer.lock().await.filesystems().await };
    let (layers, volumes, filesystems, images, disk) = futures::join!(
        sampler.pods.writable_layers(),
        sampler.volume_stats(),
        filesystems,
        image_usage(&sampler.pods.runtime),
        disk
    );
    job.images = images;
    job.disk = disk.map_err(|error| SummaryError::Failed(polylet_kit::report(&error)))?;
    job.layers = layers.unwrap_or_default();
    (job.volumes, job.filesystems) = (volumes, filesystems);
    job.mounted = mounted_spaces(sampler, job).await;
    Ok(())
}

/// The space of all volumes that are mounted, by directory.
async fn mounted_spaces(sampler: &Sampler, job: &SummaryJob) -> BTreeMap<PathBuf, Filesystem> {
    let mut mounted = Vec::new();
    for pod in &job.pods {
        let first = 1 + pod.pod.running.len();
        let volumes = pod.volumes().iter().filter(|volume| !volume.is_csi);
        let paths = job.disk.get(&pod.uid).map(|disk| disk.paths.as_slice());
        let paths = paths
            .and_then(|paths| paths.get(first..))
            .unwrap_or_default();
        for (volume, path) in volumes.zip(paths) {
            if path.is_some_and(|path| path.is_mount) {
                mounted.push((pod_ref(&pod.uid, &pod.pod), volume.clone()));
            }
        }
    }
    stream::iter(mounted)
        .map(|(pod, volume)| async move {
            let space = sampler
                .pods
                .disk
                .mounted_space(&pod, &volume.name, volume.dir.clone())
                .await;
            Some((volume.dir, space?))
        })
        .buffer_unordered(MOUNTED_AT_ONCE)
        .filter_map(|space| async { space })
        .collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    type Receiver = oneshot::Receiver<Result<TimedReport, SummaryError>>;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(waiting: &mut Waiting, not_older_than: Option<i64>) -> Receiver {
        let (response, receiver) = oneshot::channel();
        waiting.add(SummaryRequest {
            not_older_than: not_older_than.map(at),
            report: UsageReport::Summary,
            response,
        });
        receiver
    }

    #[test]
    fn one_measurement_serves_all_who_wait() {
        let mut waiting = Waiting::default();
        let mut first = request(&mut waiting, None);
        assert_eq!(waiting.begin(at(10)), Some(at(10)));
        let mut second = request(&mut waiting, Some(5));
        let mut later = request(&mut waiting, Some(11));
        assert_eq!(waiting.begin(at(12)), None);
        waiting.finish(at(10), Ok(Bytes::new()));
        assert_eq!(first.try_recv().unwrap().unwrap().0, at(10));
        assert_eq!(second.try_recv().unwrap().unwrap().0, at(10));
        // Not recent enough for this one.
        assert!(later.try_recv().is_err());
        assert_eq!(waiting.begin(at(13)), Some(at(13)));
        waiting.finish(at(13), Ok(Bytes::new()));
        assert_eq!(later.try_recv().unwrap().unwrap().0, at(13));
        // Answered without a measurement.
        let mut reused = request(&mut waiting, Some(13));
        assert_eq!(reused.try_recv().unwrap().unwrap().0, at(13));
        assert_eq!(waiting.begin(at(14)), None);
    }

    #[test]
    fn nothing_is_measured_for_callers_that_have_gone() {
        let mut waiting = Waiting::default();
        drop(request(&mut waiting, None));
        assert_eq!(waiting.begin(at(1)), None);
    }

    #[test]
    fn a_failure_is_an_error_and_is_not_reused() {
        let mut waiting = Waiting::default();
        let mut first = request(&mut waiting, None);
        waiting.begin(at(1));
        waiting.finish(at(1), Err(SummaryError::Deadline));
        assert_eq!(first.try_recv().unwrap(), Err(SummaryError::Deadline));
        let mut second = request(&mut waiting, Some(0));
        assert!(second.try_recv().is_err());
        assert_eq!(waiting.begin(at(2)), Some(at(2)));
    }
}
