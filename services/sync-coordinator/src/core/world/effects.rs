//! What steps do out there, and what the world does not bear: two sandboxes, a container that runs
//! twice, a volume unmounted under a container.

use polylet_model::hash;

use super::World;
use crate::core::learn::{Outcome, Trouble};
use crate::core::observed::{Phase, SeenContainer, SeenSandbox};
use crate::core::step::Step;
use crate::core::view::{Journal, SeenVolume};

impl World {
    /// What the step does out there, whether or not anybody hears of it.
    pub(in crate::core) fn effect(&mut self, step: &Step) -> Outcome {
        self.history.push(step.clone());
        match step.clone() {
            Step::Journal => self.disk = Some(self.pod.journal.clone()),
            Step::Decide(terminal) => {
                self.disk = Some(Journal {
                    terminal: Some(terminal),
                    ..self.pod.journal.clone()
                });
            }
            step @ (Step::Allocate { .. } | Step::Resize { .. }) => {
                self.disk = Some(self.pod.journal.after(&step));
            }
            Step::TornDown => {
                self.disk = Some(Journal {
                    torn_down: true,
                    ..self.pod.journal.clone()
                })
            }
            Step::CreateSandbox { attempt } => {
                assert!(
                    self.names.insert(format!("sandbox {attempt}")),
                    "name is reserved"
                );
                assert!(
                    !self.runtime.sandboxes.iter().any(|s| s.ready),
                    "a second sandbox"
                );
                let sandbox = SeenSandbox {
                    id: self.id("s"),
                    attempt,
                    ready: true,
                    ips: vec!["10.0.0.1".into()],
                    host_network: false,
                    created_at: Some(self.now),
                };
                self.runtime.sandboxes.insert(0, sandbox.clone());
                return Outcome::Sandbox(sandbox);
            }
            Step::PullImage { container } => {
                let image = self.wanted.container(&container).unwrap().image.clone();
                self.images.insert(image.clone());
                return Outcome::Image {
                    image_ref: format!("ref-{image}"),
                    image,
                };
            }
            Step::CreateContainer {
                container,
                attempt,
                back_off_step,
                sandbox_id,
                image_ref,
            } => {
                assert!(
                    self.names.insert(format!("{container} {attempt}")),
                    "name is reserved"
                );
                assert!(self.images.contains(image_ref.trim_start_matches("ref-")));
                if self.wanted.has_volumes {
                    assert!(self.volumes.as_ref().unwrap().iter().all(|v| v.mounted));
                }
                let spec = &self.wanted.container(&container).unwrap().spec;
                let hash = hash::container_annotation(spec);
                let made = SeenContainer {
                    id: self.id("c"),
                    sandbox_id,
                    name: container.clone(),
                    attempt,
                    phase: Phase::Created,
                    exit_code: 0,
                    reason: String::new(),
                    aborted: false,
                    hash,
                    back_off_step,
                    made_with: self
                        .pod
                        .journal
                        .allocated
                        .as_ref()
                        .map(|given| given.amounts(&container)),
                    grace: None,
                    pre_stop: None,
                    created_at: Some(self.now),
                    started_at: None,
                    finished_at: None,
                };
                self.runtime.containers.insert(0, made.clone());
                return Outcome::Created(made);
            }
            Step::StartContainer { id, container, .. } => {
                let twice = self
                    .runtime
                    .containers
                    .iter()
                    .any(|c| c.name == container && c.phase == Phase::Running);
                assert!(!twice, "{container} runs twice");
                assert!(
                    self.disk.as_ref().is_none_or(|j| j.terminal.is_none()),
                    "a terminal pod runs"
                );
                let now = self.now;
                let made = self.runtime.containers.iter_mut().find(|c| c.id == id);
                let Some(made) = made.filter(|c| c.phase == Phase::Created) else {
                    return Outcome::Failed(Trouble::default());
                };
                made.phase = Phase::Running;
                made.started_at = Some(now);
            }
            Step::PostStart { id, .. } | Step::PreStop { id, .. } => {
                self.hooks.push((step.key(), id));
            }
            Step::StopContainer { id, .. } => self.exit(&id, 137),
            Step::StopSandbox { id } => {
                assert!(
                    !self
                        .runtime
                        .containers
                        .iter()
                        .any(|c| c.sandbox_id == id && c.may_run())
                );
                self.runtime
                    .sandboxes
                    .iter_mut()
                    .filter(|s| s.id == id)
                    .for_each(|s| s.ready = false);
            }
            Step::RemoveContainer { id, .. } | Step::ResetContainer { id, .. } => {
                assert!(
                    !self
                        .runtime
                        .container(&id)
                        .is_some_and(SeenContainer::may_run)
                );
                self.runtime.containers.retain(|c| c.id != id);
            }
            Step::RemoveSandbox { id } => {
                assert!(!self.runtime.containers.iter().any(|c| c.sandbox_id == id));
                self.runtime.sandboxes.retain(|s| s.id != id);
            }
            Step::ApplyVolumes => {
                let mounted = SeenVolume {
                    coming: false,
                    name: "data".into(),
                    mounted: true,
                    gone: false,
                    host_path: "/v".into(),
                    message: String::new(),
                    refusal: String::new(),
                    group: None,
                };
                self.volumes = Some(vec![mounted.clone()]);
                let digest = self.wanted.digest.clone();
                return Outcome::Declared {
                    digest,
                    sequence: 1,
                    seen: vec![mounted],
                };
            }
            Step::ReleaseVolumes => {
                assert!(
                    !self.runtime.containers.iter().any(SeenContainer::may_run),
                    "unmounted under a container"
                );
                self.volumes = None;
                self.pod.volumes.seen = None;
            }
            Step::EnsureCgroup | Step::RemoveCgroup | Step::RemoveFiles => {}
        }
        Outcome::Done
    }

    /// A container ends.
    pub(in crate::core) fn exit(&mut self, id: &str, code: i32) {
        let now = self.now;
        for container in self
            .runtime
            .containers
            .iter_mut()
            .filter(|c| c.id == id && c.phase != Phase::Exited)
        {
            container.phase = Phase::Exited;
            container.exit_code = code;
            container.finished_at = Some(now);
            container.reason = if code == 0 { "Completed" } else { "Error" }.into();
        }
    }
}
