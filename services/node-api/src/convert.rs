//! Messages of peers to the domain.

use polylet_metrics::{Exemplar, FamilyKind, HistogramValue, Labels};
use polylet_wire::lifecycle::v1::{MetricExemplar, MetricFamily, MetricKind, MetricSeries};
use polylet_wire::pleg::v1::{ContainerPhase, PodState};
use polylet_wire::prober::v1::{ProbeCounts, ProbeKind};

use crate::core::metrics::{CountedFamily, CountedValue, NodeCounts};
use crate::core::pods::RunningPod;
use crate::core::probes::{DurationCounts, ProbeSeries};

/// Counts of pods and containers in the runtime.
pub(crate) fn node_counts(states: &[PodState]) -> NodeCounts {
    let mut counts = NodeCounts::default();
    for pod in states {
        counts.running_pods += u64::from(pod.sandboxes.iter().any(|sandbox| sandbox.ready));
        for container in &pod.containers {
            let phase = match container.phase() {
                ContainerPhase::Created => "created",
                ContainerPhase::Running => "running",
                ContainerPhase::Exited => "exited",
                ContainerPhase::Unknown | ContainerPhase::Unspecified => "unknown",
            };
            *counts.containers.entry(phase).or_default() += 1;
        }
    }
    counts
}

/// A pod with running containers or a ready sandbox.
pub(crate) fn running_pod(state: &PodState) -> Option<RunningPod> {
    let reference = state.r#ref.as_ref()?;
    let containers: Vec<(String, String)> = state
        .containers
        .iter()
        .filter(|container| container.phase() == ContainerPhase::Running)
        .map(|container| (container.name.clone(), container.image.clone()))
        .collect();
    let running = !containers.is_empty() || state.sandboxes.iter().any(|sandbox| sandbox.ready);
    running.then(|| RunningPod {
        uid: reference.uid.clone(),
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        containers,
    })
}

/// The counts of one probe; `None` for a kind that this build does not know.
pub(crate) fn probe_series(counts: ProbeCounts) -> Option<ProbeSeries> {
    let kind = match counts.kind() {
        ProbeKind::Startup => "Startup",
        ProbeKind::Liveness => "Liveness",
        ProbeKind::Readiness => "Readiness",
        ProbeKind::Unspecified => return None,
    };
    let pod = counts.pod.unwrap_or_default();
    Some(ProbeSeries {
        kind,
        container: counts.container,
        pod: pod.name,
        namespace: pod.namespace,
        pod_uid: pod.uid,
        successful: counts.successful,
        failed: counts.failed,
        unknown: counts.unknown,
        durations: DurationCounts {
            count: counts.successful + counts.unknown,
            bucket_counts: counts.bucket_counts,
            sum_seconds: counts.duration_seconds_sum,
        },
    })
}

/// A family of a peer; `None` for a kind that this build does not know.
pub(crate) fn counted_family(family: MetricFamily) -> Option<CountedFamily> {
    let kind = match family.kind() {
        MetricKind::Counter => FamilyKind::Counter,
        MetricKind::Gauge => FamilyKind::Gauge,
        MetricKind::Histogram => FamilyKind::Histogram,
        MetricKind::Unspecified => return None,
    };
    Some(CountedFamily {
        name: family.name,
        help: family.help,
        kind,
        series: family.series.into_iter().map(counted_series).collect(),
    })
}

fn counted_series(series: MetricSeries) -> (Labels, CountedValue) {
    let mut labels = Labels::default();
    for label in &series.labels {
        labels.push(&label.name, &label.value);
    }
    let value = match series.histogram {
        None => CountedValue::Number(series.value),
        Some(histogram) => {
            let counts = histogram.cumulative_counts.into_iter();
            CountedValue::Histogram(HistogramValue {
                buckets: histogram.bounds.into_iter().zip(counts).collect(),
                sum: histogram.sum,
                count: histogram.count,
                exemplars: histogram
                    .exemplars
                    .into_iter()
                    .filter_map(exemplar)
                    .collect(),
            })
        }
    };
    (labels, value)
}

/// An exemplar of a peer; `None` if it does not say when it was measured.
fn exemplar(exemplar: MetricExemplar) -> Option<Exemplar> {
    let measured_at = polylet_wire::time::from_wire_opt(exemplar.measured_at.as_ref())?;
    Some(Exemplar {
        bucket: usize::try_from(exemplar.bucket).ok()?,
        value: exemplar.value,
        trace_id: exemplar.trace_id,
        measured_at: measured_at.as_millisecond() as f64 / 1e3,
    })
}
