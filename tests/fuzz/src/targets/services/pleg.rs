//! pleg: arbitrary answers and events of the container runtime.

use std::collections::BTreeMap;

use polylet_pleg::core::{ContainerStatus, FreshStatuses, Inspected, ListedPod, SandboxStatus};
use polylet_pleg::fuzzing;
use polylet_pleg::manager::{Pleg, RuntimeCall};
use polylet_watch::Store;
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::runtime::v1 as cri;
use tokio::sync::watch;

use crate::input::{Frame, frames};
use crate::targets::manifests::now;

/// The runtime as the frames describe it.
#[derive(Default)]
struct FuzzedRuntime {
    sandboxes: cri::ListPodSandboxResponse,
    containers: cri::ListContainersResponse,
    sandbox_statuses: BTreeMap<String, SandboxStatus>,
    container_statuses: BTreeMap<String, ContainerStatus>,
}

/// Runs the relists and inspections with the messages of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let (status, _) = watch::channel(WatchRuntimeResponse::default());
    let mut pleg = Pleg::new(Store::new("fuzz"), status, now());
    let mut runtime = FuzzedRuntime::default();
    for frame in frames(data).iter().take(64) {
        handle(&mut pleg, &mut runtime, frame);
        // Calls may lead to further ones, with the same results.
        for _ in 0..3 {
            for call in pleg.reconcile(now(), |_, _| ()) {
                runtime.answer(&mut pleg, call);
            }
        }
    }
}

fn handle(pleg: &mut Pleg, runtime: &mut FuzzedRuntime, frame: &Frame<'_>) {
    match frame.select(7) {
        0 => runtime.sandboxes = frame.message().unwrap_or_default(),
        1 => runtime.containers = frame.message().unwrap_or_default(),
        2 => {
            if let Some(event) = frame.message() {
                pleg.handle_event(fuzzing::event(event), now());
            }
        }
        3 => {
            if let Some(status) = frame.message() {
                let check = fuzzing::health_check(cri::VersionResponse::default(), status);
                pleg.on_health_check(Ok(check), now());
            }
        }
        4 => {
            if let Some(status) = frame.message() {
                let status = fuzzing::sandbox(status);
                runtime.sandbox_statuses.insert(status.id.clone(), status);
            }
        }
        5 => {
            if let Some(response) = frame.message() {
                let status = fuzzing::container(response, "s1".to_owned());
                runtime.container_statuses.insert(status.id.clone(), status);
            }
        }
        _ => pleg.set_event_stream(!frame.content.is_empty(), now()),
    }
}

impl FuzzedRuntime {
    fn answer(&self, pleg: &mut Pleg, call: RuntimeCall) {
        match call {
            RuntimeCall::CheckHealth => {
                pleg.on_health_check(Err("unavailable".to_owned()), now());
            }
            RuntimeCall::List { sequence } => {
                let (sandboxes, containers) = (self.sandboxes.clone(), self.containers.clone());
                let listing = fuzzing::listing(sandboxes, containers);
                pleg.on_relisted(sequence, Ok(listing), now());
            }
            RuntimeCall::Inspect { uid, listed, .. } => {
                let listed: ListedPod = listed.unwrap_or_default();
                let sandboxes = listed.sandboxes.keys().map(|id| {
                    let status = self.sandbox_statuses.get(id).cloned();
                    (id.clone(), status.ok_or_else(|| "not found".to_owned()))
                });
                let containers = listed.containers.keys().map(|id| {
                    let status = self.container_statuses.get(id).cloned();
                    (id.clone(), status.ok_or_else(|| "not found".to_owned()))
                });
                let fresh = FreshStatuses {
                    sandboxes: sandboxes.collect(),
                    containers: containers.collect(),
                };
                pleg.on_inspected(&uid, Ok(Inspected { listed, fresh }), now());
            }
        }
    }
}
