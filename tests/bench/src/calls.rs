//! Calls to the container runtime that starts and deletions of pods cause, and the agent's processor
//! time: `cargo node-bench -- --calls`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use polylet_harness::{HarnessError, Node};
use polylet_wire::lifecycle::v1::ListMetricsRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;

use crate::idle::CpuUsage;
use crate::manifests::ManifestKind;
use crate::pods::PodDriver;
use crate::table::Table;

/// The services that call the runtime.
const CALLERS: [&str; 5] = ["pleg", "sync-coordinator", "prober", "eviction", "image-gc"];
/// The counter of calls, under upstream's name.
const OPERATIONS: &str = "kubelet_runtime_operations_total";
/// Calls that follow Ready, or the removal of the status, are counted too.
const SETTLE: Duration = Duration::from_secs(3);

/// Numbers of calls to the runtime, by caller and operation.
#[derive(Clone, Default)]
pub(crate) struct RuntimeCalls(BTreeMap<(String, String), f64>);

impl RuntimeCalls {
    /// The calls of each service of a node since its start.
    pub(crate) async fn of_services(node: &Node) -> Result<Self, HarnessError> {
        let mut calls = Self::default();
        for service in CALLERS {
            let mut client = LifecycleServiceClient::new(node.channel(service)?);
            let answer = client.list_metrics(ListMetricsRequest {}).await;
            let answer = answer.map_err(|source| HarnessError::Call {
                call: "ListMetrics",
                source: Box::new(source),
            })?;
            let families = answer.into_inner().families;
            let operations = families.into_iter().filter(|f| f.name == OPERATIONS);
            for series in operations.flat_map(|family| family.series) {
                let operation = series.labels.into_iter().next().unwrap_or_default().value;
                calls.add(service, &operation, series.value);
            }
        }
        Ok(calls)
    }

    /// The calls that an agent counts in its metrics, in the text format.
    pub(crate) fn from_metrics(text: &str) -> Self {
        let mut calls = Self::default();
        let prefix = format!("{OPERATIONS}{{operation_type=\"");
        for line in text.lines().filter_map(|line| line.strip_prefix(&prefix)) {
            if let Some((operation, count)) = line.split_once("\"} ")
                && let Ok(count) = count.trim().parse()
            {
                calls.add("", operation, count);
            }
        }
        calls
    }

    /// Adds calls of an operation.
    fn add(&mut self, caller: &str, operation: &str, count: f64) {
        let key = (caller.to_owned(), operation.to_owned());
        *self.0.entry(key).or_default() += count;
    }

    /// The calls since an earlier count, for each of `pods` pods.
    pub(crate) fn per_pod_since(&self, before: &Self, pods: usize) -> Self {
        let pods = pods.max(1) as f64;
        let since = self.0.iter().map(|(key, count)| {
            let before = before.0.get(key).copied().unwrap_or_default();
            (key.clone(), (count - before) / pods)
        });
        Self(since.filter(|(_, count)| *count > 0.0).collect())
    }

    /// The sum, and the numbers by operation.
    pub(crate) fn summary(&self) -> String {
        let mut operations: BTreeMap<&str, f64> = BTreeMap::new();
        for ((_, operation), count) in &self.0 {
            *operations.entry(operation).or_default() += count;
        }
        let sum = operations.values().fold(0.0, |sum, count| sum + count);
        let listed: Vec<_> = operations
            .iter()
            .map(|(operation, count)| format!("{operation} {count:.2}"))
            .collect();
        format!("{sum:.1} ({})", listed.join(", "))
    }

    /// A line for each caller and operation.
    fn lines(&self) -> String {
        let mut text = String::new();
        for ((caller, operation), count) in &self.0 {
            let _ = writeln!(text, "    {caller} {operation}: {count:.2}");
        }
        text
    }
}

/// Starts and deletes `count` pods at once.
pub(crate) async fn measure(
    node: &Node,
    count: usize,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    // The first pod is warm-up.
    pods.start("first", &ManifestKind::Bare.manifest("first"))
        .await?;
    pods.remove("first").await?;
    tokio::time::sleep(SETTLE).await;
    eprintln!("{count} starts at once");
    let start = CallInterval::begin(node).await?;
    let names = pods.put_many(count, |name| ManifestKind::Bare.manifest(name))?;
    pods.all_ready(&names).await?;
    start.end("start", count, table).await?;
    eprintln!("{count} deletions at once");
    let deletion = CallInterval::begin(node).await?;
    pods.remove_many(&names).await?;
    deletion.end("deletion", count, table).await
}

/// What is counted between two times.
struct CallInterval<'a> {
    node: &'a Node,
    calls: RuntimeCalls,
    used: CpuUsage,
}

impl<'a> CallInterval<'a> {
    async fn begin(node: &'a Node) -> Result<Self, HarnessError> {
        Ok(Self {
            node,
            calls: RuntimeCalls::of_services(node).await?,
            used: CpuUsage::since_now(&[node.scratch()]),
        })
    }

    async fn end(self, what: &str, count: usize, table: &mut Table) -> Result<(), HarnessError> {
        tokio::time::sleep(SETTLE).await;
        let used = self.used.so_far();
        let now = RuntimeCalls::of_services(self.node).await?;
        let calls = now.per_pod_since(&self.calls, count);
        eprint!("{}", calls.lines());
        let ours = used.iter().filter(|(name, _)| name.starts_with("polylet"));
        let each = |seconds: f64| seconds * 1e3 / count.max(1) as f64;
        let ours: Vec<_> = ours.map(|(name, used)| (name, each(*used))).collect();
        for (name, used) in &ours {
            eprintln!("    {name}: {used:.2} ms of CPU");
        }
        let sum: f64 = ours.iter().map(|(_, used)| used).sum();
        table.calls(what, count, &calls, sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RuntimeCalls;

    #[test]
    fn calls_are_read_from_metrics() {
        let before = RuntimeCalls::from_metrics("");
        let text = "# TYPE kubelet_runtime_operations_total counter\n\
                    kubelet_runtime_operations_total{operation_type=\"list_containers\"} 30\n\
                    kubelet_runtime_operations_total{operation_type=\"version\"} 1e+01\n\
                    kubelet_runtime_operations_errors_total{operation_type=\"version\"} 7\n";
        let calls = RuntimeCalls::from_metrics(text).per_pod_since(&before, 20);
        assert_eq!(calls.summary(), "2.0 (list_containers 1.50, version 0.50)");
        let none = RuntimeCalls::from_metrics(text);
        assert_eq!(none.per_pod_since(&none, 1).summary(), "0.0 ()");
    }
}
