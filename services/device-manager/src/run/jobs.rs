//! What is done for pods: one matter of a pod after the other, and different pods at once.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use polylet_kit::{cause, clock, report};
use polylet_wire::device::v1::{
    AllocateDevicesRequest, AllocateDevicesResponse, PrepareContainerRequest,
    PrepareContainerResponse,
};
use polylet_wire::deviceplugin::v1beta1::ContainerAllocateResponse;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::EventLoop;
use crate::core::allocation;
use crate::core::allocations::AllocatedResource;
use crate::core::pod_allocation::{AllocationStep, PodDeviceAllocation};
use crate::core::run_options::ContainerRunOptions;
use crate::input::{Input, PluginAnswer};
use crate::plugin::calls::{PluginCallError, PluginClient};
use crate::state::{JobPurpose, PodJob};
use crate::{convert, metrics};

impl EventLoop {
    /// Allocates devices at a pod's admission.
    pub(super) fn allocate(
        &mut self,
        request: AllocateDevicesRequest,
        response: oneshot::Sender<AllocateDevicesResponse>,
    ) {
        let pod = request.r#ref.clone().unwrap_or_default();
        self.free_inactive(&request);
        let containers = convert::containers(&request);
        self.start_job(PodJob {
            allocation: PodDeviceAllocation::new(&pod.uid, containers),
            purpose: JobPurpose::Admission(response),
            cause: request.cause,
            allocating: None,
            pod,
        });
    }

    /// Prepares a container's devices for its start.
    pub(super) fn prepare(
        &mut self,
        request: PrepareContainerRequest,
        response: oneshot::Sender<PrepareContainerResponse>,
    ) {
        let all = request.pod.unwrap_or_default();
        let pod = all.r#ref.clone().unwrap_or_default();
        self.free_inactive(&all);
        let mut containers = convert::containers(&all);
        containers.retain(|container| container.name == request.container);
        let limits = containers.iter().flat_map(|c| c.limits.keys());
        let unprepared = limits.filter(|resource| self.state.is_device_resource(resource));
        let unprepared: VecDeque<String> = unprepared.cloned().collect();
        // What was allocated at the admission is not judged again.
        let allocated = self
            .state
            .allocations
            .container(&pod.uid, &request.container);
        for container in &mut containers {
            let has = |resource: &String| allocated.is_some_and(|all| all.contains_key(resource));
            container.limits.retain(|resource, _| !has(resource));
        }
        self.start_job(PodJob {
            allocation: PodDeviceAllocation::new(&pod.uid, containers),
            purpose: JobPurpose::Start {
                container: request.container,
                unprepared,
                response,
            },
            cause: all.cause,
            allocating: None,
            pod,
        });
    }

    /// Forgets the devices of pods that have ended, once all pods are known.
    fn free_inactive(&mut self, request: &AllocateDevicesRequest) {
        let own = request.r#ref.as_ref().map(|pod| pod.uid.as_str());
        if let Some(uid) = own {
            self.state.allocations.on_request(uid, clock::since_boot());
        }
        if !request.pods_synced {
            return;
        }
        let active = request.active_pod_uids.iter().map(String::as_str);
        // One for which a plugin is being asked was active a moment ago.
        let busy = self.state.jobs.keys().map(String::as_str);
        let active: BTreeSet<&str> = active.chain(own).chain(busy).collect();
        let as_of = Duration::from_nanos(request.active_as_of);
        for uid in self.state.allocations.retain_pods(&active, as_of) {
            tracing::debug!(pod = uid, "freed the devices of a pod that has ended");
            self.publish_pod(&uid);
        }
    }

    fn start_job(&mut self, job: PodJob) {
        let uid = job.pod.uid.clone();
        let jobs = self.state.jobs.entry(uid.clone()).or_default();
        jobs.push_back(job);
        if jobs.len() == 1 {
            self.advance(&uid);
        }
    }

    /// Goes on with the pod's first job until it needs a plugin or has ended.
    fn advance(&mut self, uid: &str) {
        let state = &mut self.state;
        let Some(job) = state.jobs.get_mut(uid).and_then(VecDeque::front_mut) else {
            return;
        };
        let step = job
            .allocation
            .advance(&state.inventory, &mut state.allocations);
        match step {
            Err(error) => self.finish(uid, Err(error.to_string())),
            Ok(AllocationStep::Prefer(key, request)) => {
                self.call(uid, &key.resource, async move |plugin| {
                    PluginAnswer::Preferred(plugin.preferred(&request).await)
                });
            }
            Ok(AllocationStep::Allocate(key, devices)) => {
                let resource = key.resource.clone();
                job.allocating = Some((key, devices.clone(), Instant::now()));
                self.call(uid, &resource, async move |plugin| {
                    PluginAnswer::Allocated(plugin.allocate(&devices).await)
                });
            }
            Ok(AllocationStep::Done) => self.prepare_start(uid),
        }
    }

    /// Has the plugins prepare the start of a container, one after the other.
    fn prepare_start(&mut self, uid: &str) {
        let state = &mut self.state;
        let job = state.jobs.get_mut(uid).and_then(VecDeque::front_mut);
        let Some(PodJob { purpose, .. }) = job else {
            return;
        };
        let JobPurpose::Start {
            container,
            unprepared,
            ..
        } = purpose
        else {
            return self.finish(uid, Ok(()));
        };
        let container = container.clone();
        let allocated = state.allocations.container(uid, &container);
        if let Err(error) = allocation::check_start(&state.inventory, allocated) {
            return self.finish(uid, Err(error.to_string()));
        }
        while let Some(resource) = unprepared.pop_front() {
            let options = state.inventory.options(&resource);
            let allocated = allocated.and_then(|all| all.get(&resource));
            if let Some(allocated) = allocated
                && options.pre_start_required
            {
                let devices = allocated.ids();
                return self.call(uid, &resource, async move |plugin| {
                    PluginAnswer::Prepared(plugin.pre_start(&devices).await)
                });
            }
        }
        self.finish(uid, Ok(()));
    }

    /// Calls the plugin of a resource for a pod's job, whose answer is an input.
    fn call<F>(&mut self, uid: &str, resource: &str, call: F)
    where
        F: AsyncFnOnce(PluginClient) -> PluginAnswer + 'static,
    {
        let Some(plugin) = self.state.plugins.get(resource) else {
            return self.finish(uid, Err(format!("endpoint {resource} has been stopped")));
        };
        let job = self.state.jobs.get(uid).and_then(VecDeque::front);
        let Some(PodJob { pod, cause, .. }) = job else {
            return;
        };
        let span = tracing::info_span!(
            "devices.plugin",
            k8s.pod.uid = pod.uid,
            k8s.pod.name = pod.name,
            k8s.namespace.name = pod.namespace,
            polylet.device.resource = resource,
        );
        cause::follow(&span, cause.as_ref());
        let (client, inputs, uid) = (plugin.client.clone(), self.inputs.clone(), uid.to_owned());
        let work = async move {
            let answer = call(client).await;
            // The event loop ends only with the process.
            let _ = inputs.send(Input::PluginAnswer(uid, answer)).await;
        };
        (self.spawn)("plugin call", Box::pin(work.instrument(span)));
    }

    pub(super) fn handle_answer(&mut self, uid: &str, answer: PluginAnswer) {
        let job = self.state.jobs.get_mut(uid).and_then(VecDeque::front_mut);
        let Some(job) = job else {
            return;
        };
        let result = match answer {
            PluginAnswer::Preferred(Ok(devices)) => {
                job.allocation.on_preferred(devices);
                Ok(())
            }
            PluginAnswer::Allocated(result) => self.handle_allocated(uid, result),
            PluginAnswer::Prepared(Ok(())) => return self.prepare_start(uid),
            PluginAnswer::Preferred(Err(error)) | PluginAnswer::Prepared(Err(error)) => {
                Err(report(&error))
            }
        };
        match result {
            Ok(()) => self.advance(uid),
            Err(error) => self.finish(uid, Err(error)),
        }
    }

    /// Records what a plugin has allocated, or gives the devices back.
    fn handle_allocated(
        &mut self,
        uid: &str,
        result: Result<Option<ContainerAllocateResponse>, PluginCallError>,
    ) -> Result<(), String> {
        let state = &mut self.state;
        let job = state.jobs.get_mut(uid).and_then(VecDeque::front_mut);
        let allocating = job.and_then(|job| Some((job.allocating.take()?, &mut job.allocation)));
        let Some(((key, devices, since), allocation)) = allocating else {
            return Ok(());
        };
        metrics::observe_allocation(&key.resource, since.elapsed());
        let none = || "no containers return in allocation response".to_owned();
        let response = result.map_err(|error| report(&error));
        match response.and_then(|response| response.ok_or_else(none)) {
            Ok(response) => {
                let allocated = AllocatedResource {
                    devices: allocation::by_numa_node(&state.inventory, &key.resource, &devices),
                    run_options: convert::run_options(response),
                };
                state.allocations.insert(key, allocated);
                allocation.on_allocated();
                Ok(())
            }
            Err(error) => {
                state.allocations.release(&key);
                Err(error)
            }
        }
    }

    /// Ends the pod's first job, and starts its next one. Allocations are stored before they are used.
    fn finish(&mut self, uid: &str, result: Result<(), String>) {
        let stored = self.save().map_err(|error| report(&error));
        let result = result.and(stored);
        self.publish_pod(uid);
        let jobs = self.state.jobs.get_mut(uid);
        let job = jobs.and_then(VecDeque::pop_front);
        if let Some(job) = job {
            let PodJob { pod, purpose, .. } = job;
            if let Some((key, ..)) = job.allocating {
                self.state.allocations.release(&key);
            }
            if let Err(error) = &result {
                let (namespace, name) = (&pod.namespace, &pod.name);
                tracing::info!(namespace, pod = name, error, "pod does not get its devices");
            }
            self.respond(uid, purpose, result);
        }
        if self.state.jobs.get(uid).is_some_and(VecDeque::is_empty) {
            self.state.jobs.remove(uid);
        } else {
            self.advance(uid);
        }
    }

    fn respond(&self, uid: &str, purpose: JobPurpose, result: Result<(), String>) {
        let state = &self.state;
        // A caller that has given up asks again.
        match purpose {
            JobPurpose::Admission(response) => {
                let _ = response.send(AllocateDevicesResponse {
                    allocated: match result {
                        Ok(()) => state.counts_for(uid).into_iter().collect(),
                        Err(_) => Default::default(),
                    },
                    error: result.err().unwrap_or_default(),
                });
            }
            JobPurpose::Start {
                container,
                response,
                ..
            } => {
                let _ = response.send(match result {
                    Ok(()) => {
                        let allocated = state.allocations.container(uid, &container);
                        let all = allocated.into_iter().flatten();
                        let all = all.map(|(_, resource)| &resource.run_options);
                        let (options, conflicts) = ContainerRunOptions::join(all);
                        if !conflicts.is_empty() {
                            tracing::warn!(pod = uid, container, ?conflicts, "device plugins set the same names or paths differently; using the first");
                        }
                        convert::prepared(options)
                    }
                    Err(error) => PrepareContainerResponse {
                        error,
                        ..PrepareContainerResponse::default()
                    },
                });
            }
        }
    }
}
