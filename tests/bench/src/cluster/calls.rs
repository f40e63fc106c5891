//! Calls to the runtime, requests to the API server and processor time of pods that start, and are
//! deleted, at once: `cargo node-bench -- --calls --kubelet`.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_harness::HarnessError;

use super::{Bench, SETTLE, manifest};
use crate::calls::RuntimeCalls;
use crate::idle::CpuUsage;
use crate::manifests::ManifestKind;

/// How long ext4 uses no deleted inode again (`RECENTCY_MIN` of its inode allocator), once their blocks are written: it
/// tries each of them for each new file, which would be counted to the agent that is measured second.
const INODE_REUSE: Duration = Duration::from_secs(61);

/// What pods have cost an agent, each of them.
#[derive(Default)]
struct PodCost {
    calls: RuntimeCalls,
    /// Writes to the API server, by verb and resource.
    writes: BTreeMap<String, f64>,
    /// Milliseconds of processor time, of all processes of the agent.
    processor: f64,
}

impl Bench<'_> {
    /// Starts and deletes `count` pods at once on each node, the other one being empty.
    pub(super) async fn calls(&mut self, count: usize) -> Result<(), HarnessError> {
        let pod = manifest(ManifestKind::Bare)?;
        let mut costs: [Vec<PodCost>; 2] = Default::default();
        for (which, costs) in costs.iter_mut().enumerate() {
            let agent = self.sides[which].program();
            eprintln!("{count} pods by {agent}");
            // The first pod is warm-up.
            self.sides[which].up("first", &pod).await?;
            self.sides[which].down("first").await?;
            rustix::fs::sync();
            tokio::time::sleep(INODE_REUSE).await;
            let before = self.mark(which).await?;
            self.sides[which].many_up(count, &pod).await?;
            costs.push(self.cost_since(which, before, count).await?);
            let before = self.mark(which).await?;
            self.sides[which].many_down(count).await?;
            costs.push(self.cost_since(which, before, count).await?);
        }
        let [kubelet, polylet] = costs;
        let both = kubelet.into_iter().zip(polylet);
        for (what, (kubelet, polylet)) in ["start", "deletion"].into_iter().zip(both) {
            let of = format!("each of {count} {what}s at once");
            let table = &mut self.table;
            let costs = [&kubelet, &polylet];
            let cells = costs.map(|cost| cost.calls.summary());
            table.line(format!("calls to the runtime, {of}"), "", cells);
            let cells = costs.map(PodCost::writes_summary);
            table.line(format!("writes to the API server, {of}"), "", cells);
            let cells = costs.map(|cost| format!("{:.1} ms", cost.processor));
            table.line(format!("processor time of the agent, {of}"), "", cells);
        }
        Ok(())
    }

    async fn mark(&self, which: usize) -> Result<(RuntimeCalls, u64, CpuUsage), HarnessError> {
        let calls = self.runtime_calls(which).await?;
        let (_, requests) = self.cluster.requests(0)?;
        let used = CpuUsage::since_now(&[self.sides[which].node.scratch()]);
        Ok((calls, requests, used))
    }

    async fn cost_since(
        &self,
        which: usize,
        (calls, requests, used): (RuntimeCalls, u64, CpuUsage),
        count: usize,
    ) -> Result<PodCost, HarnessError> {
        tokio::time::sleep(SETTLE).await;
        let side = &self.sides[which];
        let used = used.so_far();
        let each = |amount: f64| amount / count.max(1) as f64;
        let ours = used
            .iter()
            .filter(|(name, _)| name.starts_with(side.program()));
        let mut cost = PodCost {
            calls: self
                .runtime_calls(which)
                .await?
                .per_pod_since(&calls, count),
            ..PodCost::default()
        };
        for (name, seconds) in ours {
            let milliseconds = each(seconds * 1e3);
            eprintln!("    {name}: {milliseconds:.2} ms of CPU");
            cost.processor += milliseconds;
        }
        for request in side.requests(requests)? {
            let is_write = !["get", "list", "watch"].contains(&request.verb.as_str());
            if is_write && request.resource.starts_with("pods") {
                let kind = format!("{} {}", request.verb, request.resource);
                *cost.writes.entry(kind).or_default() += each(1.0);
            }
        }
        Ok(cost)
    }
}

impl PodCost {
    fn writes_summary(&self) -> String {
        let writes = self.writes.iter();
        let listed: Vec<_> = writes
            .map(|(kind, count)| format!("{kind} {count:.2}"))
            .collect();
        listed.join(", ")
    }
}
