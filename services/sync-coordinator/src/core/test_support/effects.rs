//! Effects of steps, and invariants: one ready sandbox, one running container per name, no volume
//! unmounted under a container.

use polylet_model::hash;

use super::TestEnv;
use crate::core::devices::PreparedDevices;
use crate::core::runtime_state::{ContainerRecord, ContainerState, SandboxRecord};
use crate::core::step::{PreparedSubPath, Step, StepFailure, StepOutcome};
use crate::core::volume_state::ObservedVolume;

impl TestEnv {
    /// Executes a step, whether or not its result is reported.
    pub(in crate::core) fn effect(&mut self, step: &Step) -> StepOutcome {
        self.history.push(step.clone());
        match step.clone() {
            Step::Checkpoint => self.disk = Some(self.pod.checkpoint.clone()),
            step @ (Step::CheckpointTermination(_)
            | Step::CheckpointTerminated
            | Step::CheckpointAllocation { .. }) => {
                self.disk = Some(step.checkpoint_after(&self.pod.checkpoint));
            }
            Step::CreateSandbox { attempt } => return self.create_sandbox(attempt),
            Step::PullImage { container } => {
                let image = self.spec.container(&container).unwrap().image.clone();
                self.images.insert(image.clone());
                return StepOutcome::ImagePulled {
                    image_ref: format!("ref-{image}"),
                    image,
                };
            }
            Step::FindImage { container } => {
                let image = self.spec.container(&container).unwrap().image.clone();
                if self.images.contains(&image) {
                    return StepOutcome::ImagePulled {
                        image_ref: format!("ref-{image}"),
                        image,
                    };
                }
            }
            Step::AllocateDevices => return StepOutcome::DevicesAllocated(self.devices.clone()),
            Step::PrepareDevices { .. } => {
                return StepOutcome::DevicesPrepared(PreparedDevices {
                    cdi_devices: vec![format!("example.com/device={}", self.history.len())],
                    ..PreparedDevices::default()
                });
            }
            Step::PrepareSubPaths { .. } => {
                return StepOutcome::SubPathsPrepared(vec![PreparedSubPath {
                    mount_index: 0,
                    volume: "data".into(),
                    path: "sub".into(),
                    host_path: format!("/prepared/{}", self.history.len()),
                }]);
            }
            step @ Step::CreateContainer { .. } => return self.create_container(&step),
            Step::StartContainer { id, container, .. } => {
                return self.start_container(&id, &container);
            }
            Step::PostStart { id, .. } | Step::PreStop { id, .. } => {
                self.hooks.push((step.key(), id));
            }
            Step::StopContainer { id, .. } => self.exit_by_id(&id, 137),
            Step::StopSandbox { id } => {
                let mut containers = self.runtime.containers.iter();
                assert!(
                    !containers.any(|c| c.sandbox_id == id && c.may_run()),
                    "sandbox stopped under a container"
                );
                let sandboxes = self.runtime.sandboxes.iter_mut();
                sandboxes
                    .filter(|s| s.id == id)
                    .for_each(|s| s.ready = false);
            }
            Step::RemoveContainer { id, .. } | Step::RemoveForRestart { id, .. } => {
                let container = self.runtime.container(&id);
                assert!(
                    !container.is_some_and(ContainerRecord::may_run),
                    "running container removed"
                );
                // No other restart count is used twice.
                if let Some(aborted) = container.filter(|container| container.aborted) {
                    let name = format!("{} {}", aborted.name, aborted.attempt);
                    self.names.remove(&name);
                }
                self.runtime.containers.retain(|c| c.id != id);
            }
            Step::RemoveSandbox { id } => {
                assert!(!self.runtime.containers.iter().any(|c| c.sandbox_id == id));
                self.runtime.sandboxes.retain(|s| s.id != id);
            }
            Step::ApplyVolumes => {
                let mounted = ObservedVolume {
                    imminent: false,
                    name: "data".into(),
                    mounted: true,
                    gone: false,
                    host_path: "/v".into(),
                    message: String::new(),
                    rejection_reason: String::new(),
                    supplemental_group: None,
                };
                self.volumes = Some(vec![mounted.clone()]);
                return StepOutcome::VolumesDeclared {
                    digest: self.spec.digest.clone(),
                    sequence: 1,
                    volumes: vec![mounted],
                };
            }
            Step::ReleaseVolumes => {
                let mut containers = self.runtime.containers.iter();
                assert!(
                    !containers.any(ContainerRecord::may_run),
                    "volume unmounted under a container"
                );
                self.volumes = None;
                self.pod.volumes.reported = None;
            }
            Step::Resize { .. } | Step::EnsureCgroup | Step::RemoveCgroup | Step::RemoveFiles => {}
        }
        StepOutcome::Done
    }

    fn create_sandbox(&mut self, attempt: u32) -> StepOutcome {
        assert!(
            self.names.insert(format!("sandbox {attempt}")),
            "name is reserved"
        );
        assert!(
            !self.runtime.sandboxes.iter().any(|s| s.ready),
            "a second sandbox"
        );
        let sandbox = SandboxRecord {
            id: self.next_id("s"),
            attempt,
            ready: true,
            ips: vec!["10.0.0.1".into()],
            host_network: false,
            created_at: Some(self.now),
        };
        self.runtime.sandboxes.insert(0, sandbox.clone());
        StepOutcome::SandboxCreated(sandbox)
    }

    fn create_container(&mut self, step: &Step) -> StepOutcome {
        let Step::CreateContainer {
            container,
            attempt,
            backoff_step,
            sandbox_id,
            image_ref,
        } = step
        else {
            panic!("{step:?}");
        };
        assert!(
            self.names.insert(format!("{container} {attempt}")),
            "name is reserved"
        );
        assert!(self.images.contains(image_ref.trim_start_matches("ref-")));
        if self.spec.has_volumes {
            assert!(self.volumes.as_ref().unwrap().iter().all(|v| v.mounted));
        }
        let spec = self.spec.container(container).unwrap();
        let prepared = self.pod.prepared_devices.contains_key(container);
        assert_eq!(prepared, !spec.device_limits.is_empty(), "prepared devices");
        let hash = hash::container_hash_annotation(&spec.spec);
        let allocated = self.pod.checkpoint.allocated.as_ref();
        let created = ContainerRecord {
            created_resources: allocated.map(|pod| pod.container_resources(container)),
            id: self.next_id("c"),
            sandbox_id: sandbox_id.clone(),
            name: container.clone(),
            attempt: *attempt,
            state: ContainerState::Created,
            exit_code: 0,
            reason: String::new(),
            aborted: false,
            hash,
            backoff_step: *backoff_step,
            grace_period: None,
            pre_stop: None,
            created_at: Some(self.now),
            started_at: None,
            finished_at: None,
        };
        self.runtime.containers.insert(0, created.clone());
        StepOutcome::ContainerCreated(created)
    }

    fn start_container(&mut self, id: &str, name: &str) -> StepOutcome {
        assert!(self.running(name).is_none(), "{name} runs twice");
        assert!(
            self.disk.as_ref().is_none_or(|c| !c.terminated),
            "a terminated pod runs"
        );
        let now = self.now;
        let mut containers = self.runtime.containers.iter_mut();
        let created = containers.find(|c| c.id == id);
        let Some(created) = created.filter(|c| c.state == ContainerState::Created) else {
            return StepOutcome::Failed(StepFailure::default());
        };
        created.state = ContainerState::Running;
        created.started_at = Some(now);
        StepOutcome::Done
    }

    /// Exits a container without reporting it.
    pub(in crate::core) fn exit_by_id(&mut self, id: &str, code: i32) {
        let now = self.now;
        for container in self
            .runtime
            .containers
            .iter_mut()
            .filter(|c| c.id == id && c.state != ContainerState::Exited)
        {
            container.state = ContainerState::Exited;
            container.exit_code = code;
            container.finished_at = Some(now);
            container.reason = if code == 0 { "Completed" } else { "Error" }.into();
        }
    }
}
