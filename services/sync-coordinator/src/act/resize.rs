//! A change of resources, carried out: the pod's cgroup grows before its containers and shrinks
//! after them, memory before CPU. It stops at the first failure and is begun anew from what then is.

use std::rc::Rc;

use polylet_model::resources::{PodResources, SandboxResources};
use polylet_model::{Manifest, resources};

use super::cgroup::{self, Now};
use super::{Hands, Job, journal, manifest, said};
use crate::core::learn::{Outcome, Trouble};
use crate::core::resize::{Change, Resource};

/// The word for all failures of it.
const REASON: &str = "ResizePodInPlaceError";

/// Gives the pod's cgroup and its running containers what was allocated, and writes that down.
pub async fn carry(hands: &Rc<Hands>, job: &Job, changes: &[Change]) -> Result<Outcome, Trouble> {
    let resized = resize(hands, job, changes).await;
    resized.map_err(|why| said(REASON, why))?;
    cgroup::reweigh(hands, job.class_requests).await;
    journal(hands, job).await
}

async fn resize(hands: &Rc<Hands>, job: &Job, changes: &[Change]) -> Result<(), String> {
    let manifest = manifest(job).map_err(|trouble| trouble.message)?;
    let kubelet = &hands.ctx.config().kubelet;
    let period = super::resources::period(kubelet);
    let wanted = resources::pod(manifest.spec(), kubelet.cpu_cfs_quota, period);
    let mut pod = Pod {
        hands,
        job,
        manifest,
        now: cgroup::now(hands, manifest).await,
    };
    let goal = pod.now.map(|now| goal(now, &wanted));
    pod.may_shrink(goal, changes).await?;
    let Some(goal) = goal else {
        pod.containers(changes, Resource::Memory).await?;
        return pod.containers(changes, Resource::Cpu).await;
    };
    let before = pod.now.unwrap_or(goal);
    let memory = before.memory.max(goal.memory);
    pod.set(Now { memory, ..before }).await?;
    pod.containers(changes, Resource::Memory).await?;
    let memory = goal.memory;
    pod.set(Now { memory, ..before }).await?;
    let quota = before.quota.max(goal.quota);
    let shares = before.shares.max(goal.shares);
    pod.set(Now {
        memory,
        quota,
        ..before
    })
    .await?;
    pod.set(Now {
        memory,
        quota,
        shares,
    })
    .await?;
    pod.containers(changes, Resource::Cpu).await?;
    pod.set(Now { quota, ..goal }).await?;
    pod.set(goal).await
}

/// What the cgroup is to have. A bound that is no longer asked for stays, as upstream has it.
fn goal(now: Now, wanted: &PodResources) -> Now {
    Now {
        memory: wanted.memory_limit.filter(|b| *b > 0).unwrap_or(now.memory),
        quota: match wanted.cpu_quota {
            Some(quota) if quota > 0 => quota,
            Some(_) => i64::MAX,
            None => now.quota,
        },
        shares: wanted.cpu_shares,
    }
}

/// A pod on its way from one size to another.
struct Pod<'a> {
    hands: &'a Rc<Hands>,
    job: &'a Job,
    manifest: &'a Manifest,
    /// What its cgroup has; none where pods have no cgroup of their own.
    now: Option<Now>,
}

impl Pod<'_> {
    /// Gives the pod's cgroup something else. The runtime hears of it first and may refuse.
    async fn set(&mut self, goal: Now) -> Result<(), String> {
        let Some(now) = self.now.filter(|now| *now != goal) else {
            return Ok(());
        };
        self.tell(goal).await?;
        if let Err(error) = cgroup::set(self.hands, self.manifest, goal).await {
            if let Err(why) = self.tell(now).await {
                tracing::warn!(k8s.pod.uid = self.job.pod.uid, why, "resize not taken back");
            }
            return Err(error);
        }
        self.now = Some(goal);
        Ok(())
    }

    async fn tell(&self, goal: Now) -> Result<(), String> {
        let newest = self.job.observed.newest_sandbox();
        let Some(sandbox) = newest.filter(|sandbox| sandbox.ready) else {
            return Ok(());
        };
        let kubelet = &self.hands.ctx.config().kubelet;
        let bounded = |value: i64| if value == i64::MAX { 0 } else { value };
        let spec = self.manifest.spec();
        let (quota, period) = (kubelet.cpu_cfs_quota, super::resources::period(kubelet));
        let told = SandboxResources {
            cpu_shares: goal.shares,
            cpu_quota: bounded(goal.quota),
            cpu_period: period,
            memory_limit: bounded(goal.memory),
        };
        let overhead = SandboxResources::of_overhead(spec, quota, period);
        let told = super::resources::of_sandbox(told.without(overhead.as_ref()));
        let overhead = super::resources::of_overhead(spec, kubelet);
        let runtime = self.job.runtime(self.hands);
        match runtime
            .update_pod_sandbox_resources(&sandbox.id, Some(overhead), Some(told))
            .await
        {
            // It is for what listens to the runtime alone: none of them need do.
            Err(error) if !error.is_unimplemented() => Err(format!(
                "updatePodSandboxResources failed for sanboxID {:?}: {}",
                sandbox.id,
                error.message()
            )),
            _ => Ok(()),
        }
    }

    async fn containers(&self, changes: &[Change], resource: Resource) -> Result<(), String> {
        for change in Change::in_order(changes, resource) {
            // CPU comes second: memory is what it is to be by then.
            let mut has = change.to;
            if resource == Resource::Memory {
                has.cpu_limit = change.from.cpu_limit;
                has.cpu_request = change.from.cpu_request;
            }
            let Some((_, spec)) = self.manifest.container(&change.container) else {
                continue;
            };
            let mut spec = spec.clone();
            has.put_into(spec.resources.get_or_insert_default());
            let told = super::resources::of_container(self.hands, self.manifest, &spec);
            let runtime = self.job.runtime(self.hands);
            let updated = runtime.update_container_resources(&change.id, told).await;
            updated.map_err(|error| error.message().to_owned())?;
        }
        Ok(())
    }

    /// Whether what is in use leaves room for lower limits of memory; upstream's words where not.
    async fn may_shrink(&self, goal: Option<Now>, changes: &[Change]) -> Result<(), String> {
        let mut errors = Vec::new();
        if let (Some(now), Some(goal)) = (self.now, goal)
            && goal.memory < now.memory
        {
            match cgroup::memory_in_use(self.hands, self.manifest).await {
                None => errors.push("missing pod memory usage".to_owned()),
                Some(usage) if usage >= goal.memory => errors.push(format!(
                    "attempting to set pod memory limit ({}) below current usage ({usage})",
                    goal.memory
                )),
                Some(_) => {}
            }
        }
        let lowered = |from: i64, to: i64| to != 0 && (from == 0 || to < from);
        for change in changes {
            let (from, to) = (change.from.memory_limit, change.to.memory_limit);
            if !lowered(from, to) {
                continue;
            }
            let name = &change.container;
            let stats = self.hands.runtime.container_stats(&change.id).await;
            let stats = stats.ok().flatten().and_then(|stats| stats.memory);
            let usage = stats.and_then(|memory| memory.usage_bytes.or(memory.working_set_bytes));
            match usage.and_then(|usage| i64::try_from(usage.value).ok()) {
                None => errors.push(format!("missing container {name:?} memory usage")),
                Some(usage) if usage >= to => errors.push(format!(
                    "attempting to set container {name:?} memory limit ({to}) below current usage ({usage})"
                )),
                Some(_) => {}
            }
        }
        match errors.as_slice() {
            [] => Ok(()),
            [one] => Err(format!("cannot decrease memory limits: {one}")),
            all => Err(format!(
                "cannot decrease memory limits: [{}]",
                all.join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_nobody_asks_for_stays() {
        let now = Now {
            memory: 100,
            quota: 5000,
            shares: 2,
        };
        let mut wanted = PodResources {
            cpu_shares: 512,
            cpu_quota: None,
            cpu_period: 100_000,
            memory_limit: None,
            huge_pages: Default::default(),
        };
        let stays = Now { shares: 512, ..now };
        assert_eq!(goal(now, &wanted), stays);
        wanted.memory_limit = Some(200);
        wanted.cpu_quota = Some(-1);
        let grown = Now {
            memory: 200,
            quota: i64::MAX,
            shares: 512,
        };
        assert_eq!(goal(now, &wanted), grown);
    }
}
