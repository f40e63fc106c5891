//! In-place resize of a pod: its cgroup grows before its containers and shrinks after them, memory
//! before CPU. It stops at the first failure; the next attempt starts from the state at that time.

use std::rc::Rc;

use polylet_model::resources::{PodResources, SandboxResources};
use polylet_model::{Manifest, resources};

use super::cgroup::{self, CgroupSettings};
use super::{RuntimeManager, StepContext, failure, require_manifest};
use crate::core::step::{ContainerResize, ResizedResource};
use crate::core::step::{StepFailure, StepOutcome};

/// The reason of all failures.
const REASON: &str = "ResizePodInPlaceError";

/// Applies the allocated resources to the pod's cgroup and running containers.
pub async fn resize(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    changes: &[ContainerResize],
) -> Result<StepOutcome, StepFailure> {
    let resized = apply(manager, context, changes).await;
    resized.map_err(|error| failure(REASON, error))?;
    cgroup::update_weights(manager, context.qos_requests).await;
    Ok(StepOutcome::Done)
}

async fn apply(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    changes: &[ContainerResize],
) -> Result<(), String> {
    let manifest = require_manifest(context).map_err(|failure| failure.message)?;
    let kubelet = &manager.ctx.config().kubelet;
    let period = super::resources::period(kubelet);
    let resources = resources::pod_resources(manifest.spec(), kubelet.cpu_cfs_quota, period);
    let mut pod = PodResize {
        manager,
        context,
        manifest,
        settings: cgroup::read_settings(manager, manifest).await,
    };
    let goal = pod.settings.map(|now| goal(now, &resources));
    pod.check_shrink(goal, changes).await?;
    let Some(goal) = goal else {
        pod.resize_containers(changes, ResizedResource::Memory)
            .await?;
        return pod.resize_containers(changes, ResizedResource::Cpu).await;
    };
    let before = pod.settings.unwrap_or(goal);
    let memory = before.memory.max(goal.memory);
    pod.set(CgroupSettings { memory, ..before }).await?;
    pod.resize_containers(changes, ResizedResource::Memory)
        .await?;
    let memory = goal.memory;
    pod.set(CgroupSettings { memory, ..before }).await?;
    let quota = before.quota.max(goal.quota);
    let shares = before.shares.max(goal.shares);
    pod.set(CgroupSettings {
        memory,
        quota,
        ..before
    })
    .await?;
    pod.set(CgroupSettings {
        memory,
        quota,
        shares,
    })
    .await?;
    pod.resize_containers(changes, ResizedResource::Cpu).await?;
    pod.set(CgroupSettings { quota, ..goal }).await?;
    pod.set(goal).await
}

/// The desired settings of the cgroup. A limit that is no longer specified stays, as in the kubelet.
fn goal(now: CgroupSettings, desired: &PodResources) -> CgroupSettings {
    CgroupSettings {
        memory: desired
            .memory_limit
            .filter(|b| *b > 0)
            .unwrap_or(now.memory),
        quota: match desired.cpu_quota {
            Some(quota) if quota > 0 => quota,
            Some(_) => i64::MAX,
            None => now.quota,
        },
        shares: desired.cpu_shares,
    }
}

/// A resize in progress.
struct PodResize<'a> {
    manager: &'a Rc<RuntimeManager>,
    context: &'a StepContext,
    manifest: &'a Manifest,
    /// The present settings of the pod's cgroup; `None` without cgroups per pod.
    settings: Option<CgroupSettings>,
}

impl PodResize<'_> {
    /// Changes the settings of the pod's cgroup. The runtime, which may refuse, is called first.
    async fn set(&mut self, goal: CgroupSettings) -> Result<(), String> {
        let Some(now) = self.settings.filter(|now| *now != goal) else {
            return Ok(());
        };
        self.update_sandbox(goal).await?;
        if let Err(error) = cgroup::write_settings(self.manager, self.manifest, goal).await {
            if let Err(error) = self.update_sandbox(now).await {
                tracing::warn!(
                    pod = self.context.pod_name(),
                    pod_uid = self.context.pod.uid,
                    error,
                    "failed to revert sandbox resources after a failed resize"
                );
            }
            return Err(error);
        }
        self.settings = Some(goal);
        Ok(())
    }

    async fn update_sandbox(&self, goal: CgroupSettings) -> Result<(), String> {
        let newest = self.context.observed.newest_sandbox();
        let Some(sandbox) = newest.filter(|sandbox| sandbox.ready) else {
            return Ok(());
        };
        let kubelet = &self.manager.ctx.config().kubelet;
        let bounded = |value: i64| if value == i64::MAX { 0 } else { value };
        let spec = self.manifest.spec();
        let (quota, period) = (kubelet.cpu_cfs_quota, super::resources::period(kubelet));
        let resources = SandboxResources {
            cpu_shares: goal.shares,
            cpu_quota: bounded(goal.quota),
            cpu_period: period,
            memory_limit: bounded(goal.memory),
        };
        let overhead = SandboxResources::from_overhead(spec, quota, period);
        let resources =
            super::resources::sandbox_resources(resources.minus_overhead(overhead.as_ref()));
        let overhead = super::resources::overhead_resources(spec, kubelet);
        let runtime = self.context.runtime(self.manager);
        match runtime
            .update_pod_sandbox_resources(&sandbox.id, Some(overhead), Some(resources))
            .await
        {
            // Only plugins of the runtime need it.
            Err(error) if !error.is_unimplemented() => Err(format!(
                "updatePodSandboxResources failed for sanboxID {:?}: {}",
                sandbox.id,
                error.message()
            )),
            _ => Ok(()),
        }
    }

    async fn resize_containers(
        &self,
        changes: &[ContainerResize],
        resource: ResizedResource,
    ) -> Result<(), String> {
        for change in ContainerResize::in_order(changes, resource) {
            // Memory first: the CPU keeps its former values until then.
            let mut values = change.to;
            if resource == ResizedResource::Memory {
                values.cpu_limit = change.from.cpu_limit;
                values.cpu_request = change.from.cpu_request;
            }
            let Some((_, spec)) = self.manifest.container(&change.container) else {
                continue;
            };
            let mut spec = spec.clone();
            values.apply_to(spec.resources.get_or_insert_default());
            let resources =
                super::resources::container_resources(self.manager, self.manifest, &spec);
            let runtime = self.context.runtime(self.manager);
            let updated = runtime
                .update_container_resources(&change.id, resources)
                .await;
            updated.map_err(|error| error.message().to_owned())?;
        }
        Ok(())
    }

    /// Checks that the memory in use is below lowered limits, with the kubelet's messages.
    async fn check_shrink(
        &self,
        goal: Option<CgroupSettings>,
        changes: &[ContainerResize],
    ) -> Result<(), String> {
        let mut errors = Vec::new();
        if let (Some(now), Some(goal)) = (self.settings, goal)
            && goal.memory < now.memory
        {
            match cgroup::memory_in_use(self.manager, self.manifest).await {
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
            let stats = self.manager.runtime.container_stats(&change.id).await;
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
    fn limit_that_is_no_longer_specified_stays() {
        let now = CgroupSettings {
            memory: 100,
            quota: 5000,
            shares: 2,
        };
        let mut desired = PodResources {
            cpu_shares: 512,
            cpu_quota: None,
            cpu_period: 100_000,
            memory_limit: None,
            huge_pages: Default::default(),
        };
        let unchanged = CgroupSettings { shares: 512, ..now };
        assert_eq!(goal(now, &desired), unchanged);
        desired.memory_limit = Some(200);
        desired.cpu_quota = Some(-1);
        let grown = CgroupSettings {
            memory: 200,
            quota: i64::MAX,
            shares: 512,
        };
        assert_eq!(goal(now, &desired), grown);
    }
}
