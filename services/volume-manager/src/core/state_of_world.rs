//! The state of world: desired state, actual state, what volumes depend on, and what is published.

mod claims;
mod dependencies;
mod mounted;
mod pending;
mod published;
mod queries;
mod subscription_changes;
mod world_lookup;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::PodUid;

use self::claims::ClaimStates;
use self::dependencies::Dependencies;
use self::pending::PendingPods;
use self::published::PublishedStatuses;
use self::world_lookup::{RecordingLookup, WorldLookup, resolve};
use super::actual_state::{ActualStateOfWorld, Finished, ReconstructedPod, has_persistent_volumes};
use super::certificates::{CertificateKey, ReportedCertificate};
use super::csi;
use super::csi_volume::RegisteredDriver;
use super::desired_state::{DeclareError, DesiredStateOfWorld, DesiredVolumes};
use super::layout::{Layout, VolumeId};
use super::node_info::NodeInfo;
use super::operation::{Operation, OperationResult};
use super::pod::PodName;
use super::reconciler::reconcile;
use super::reference_key::ReferenceKey;
use super::references::ObjectState;
use super::spec::PodVolumeSpec;
use super::tokens::{IssuedToken, PodTokenKey};

pub use claims::{BoundClaim, ResizeState, ResizingClaim};
pub use mounted::MountedVolume;
pub use subscription_changes::{SubscriptionChange, SubscriptionChanges};

/// In place of a pod's uid: the reference of this node itself to the CSIDriver objects of its
/// drivers.
const NODE_REFERENCES: &str = "";

/// The state of the whole service.
#[derive(Debug)]
pub struct StateOfWorld {
    layout: Layout,
    desired: DesiredStateOfWorld,
    actual: ActualStateOfWorld,
    dependencies: Dependencies,
    pending: PendingPods,
    published: PublishedStatuses,
    claims: ClaimStates,
    /// How many pods have been rejected for the limit of each driver.
    rejections: BTreeMap<String, u64>,
}

impl StateOfWorld {
    /// The state after a start that found these pods on disk.
    pub fn new(layout: Layout, reconstructed: Vec<ReconstructedPod>) -> Self {
        let mut state = Self {
            layout,
            desired: DesiredStateOfWorld::default(),
            actual: ActualStateOfWorld::new(reconstructed),
            dependencies: Dependencies::default(),
            pending: PendingPods::default(),
            published: PublishedStatuses::default(),
            claims: ClaimStates::default(),
            rejections: BTreeMap::new(),
        };
        state.requeue_all();
        state
    }

    /// Sets the name of this node.
    pub fn with_node_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.dependencies.node_name);
        self
    }

    /// The name of this node.
    pub fn node_name(&self) -> &str {
        &self.dependencies.node_name
    }

    /// The paths of volumes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Declares the volumes of a pod; returns whether this is a change.
    pub fn apply(
        &mut self,
        client_id: &str,
        sequence: u64,
        pod: PodName,
        spec: Arc<PodVolumeSpec>,
    ) -> Result<bool, DeclareError> {
        let uid = pod.uid.clone();
        let changed = self.desired.apply(client_id, sequence, pod, spec)?;
        if changed {
            self.refresh_references(&uid);
            self.actual.add_pod(&uid);
        }
        self.requeue(&uid);
        Ok(changed)
    }

    /// Declares that the containers of a pod are gone for good.
    pub fn release(
        &mut self,
        client_id: &str,
        sequence: u64,
        pod: PodName,
    ) -> Result<(), DeclareError> {
        let uid = pod.uid.clone();
        self.desired.release(client_id, sequence, pod)?;
        if self.desired.get(&uid).is_some() {
            self.dependencies.remove_pod(&uid);
            self.actual.add_pod(&uid);
        }
        self.requeue(&uid);
        Ok(())
    }

    /// Ends a full declaration: from now on orphaned pods are torn down.
    pub fn complete(&mut self, client_id: &str, pods: u32) -> Result<(), DeclareError> {
        self.desired.complete(client_id, pods)?;
        self.requeue_all();
        Ok(())
    }

    /// A driver has registered, changed, or is gone.
    pub fn set_driver(&mut self, socket: &Path, driver: Option<RegisteredDriver>) {
        self.dependencies.set_driver(socket, driver);
        let names = self.dependencies.driver_names();
        let objects = names.map(csi::driver_key).collect();
        let node = PodUid::from(NODE_REFERENCES);
        self.dependencies.set_references(&node, objects);
        self.refresh_all();
    }

    /// The Node object has been received.
    pub fn set_node_info(&mut self, info: NodeInfo) {
        if self.dependencies.set_node_info(info) {
            self.refresh_all();
        }
    }

    /// A referenced object has been received.
    pub fn update_object(&mut self, key: &ReferenceKey, state: ObjectState) {
        for uid in self.dependencies.update_object(key, state) {
            self.refresh_references(&uid);
            self.requeue(&uid);
        }
    }

    /// A token request has ended.
    pub fn update_token(
        &mut self,
        key: &PodTokenKey,
        result: Result<IssuedToken, String>,
        now: Timestamp,
    ) {
        if self.dependencies.update_token(key, result, now) {
            self.requeue(&key.uid);
        }
    }

    /// The state of a certificate has been received.
    pub fn update_certificate(&mut self, key: &CertificateKey, report: ReportedCertificate) {
        if self.dependencies.update_certificate(key, report) {
            self.requeue(&key.uid);
        }
    }

    /// Takes what is to be followed from now on, and what no longer.
    pub fn take_subscription_changes(&mut self) -> SubscriptionChanges {
        self.dependencies.take_subscription_changes()
    }

    /// The drivers on this node, by name.
    pub fn drivers(&self) -> BTreeMap<String, RegisteredDriver> {
        let names = self.dependencies.driver_names();
        let drivers = names.filter_map(|name| self.dependencies.registered(name));
        drivers
            .map(|driver| (driver.name.clone(), driver.clone()))
            .collect()
    }

    /// The desired volumes of a pod.
    pub fn desired_volumes(&self, uid: &str) -> DesiredVolumes {
        if self.desired.may_tear_down(uid) {
            return DesiredVolumes::Absent;
        }
        let Some(spec) = self.desired.applied(uid) else {
            return DesiredVolumes::Unknown;
        };
        let lookup = self.lookup();
        let volumes = spec.volumes.iter();
        let resolved = volumes.filter_map(|volume| resolve(volume, &lookup));
        DesiredVolumes::Present(resolved.collect())
    }

    /// Reconciles what has changed or is due, and starts the operations returned.
    pub fn start_operations(&mut self, now: Timestamp) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (uid, retry) in self.pending.take(now) {
            if retry {
                // The status may depend on the time.
                self.mark_changed(&uid);
            }
            let desired = self.desired_volumes(&uid);
            let Some(actual) = self.actual.pod(&uid) else {
                continue;
            };
            let plan = reconcile(&uid, &desired, actual, now);
            if let Some(at) = plan.wake_at {
                self.pending.requeue_at(&uid, at);
            }
            for operation in &plan.operations {
                self.actual.start(operation);
                self.mark_changed(&uid);
            }
            operations.extend(plan.operations);
        }
        operations
    }

    /// When to start operations again if nothing happens.
    pub fn next_retry(&self) -> Option<Timestamp> {
        self.pending.next_retry()
    }

    /// An operation has ended.
    pub fn finish_operation(&mut self, finished: OperationResult, now: Timestamp) {
        let uid = finished.operation.pod_uid().clone();
        self.requeue(&uid);
        match self.actual.finish(finished, now) {
            Finished::Changed => {}
            Finished::VolumeRemoved(id) => self.requeue_waiting_pods(&id),
            Finished::PodRemoved if self.desired.may_tear_down(&uid) => {
                self.dependencies.remove_pod(&uid);
                self.desired.remove(&uid);
            }
            Finished::PodRemoved if self.desired.get(&uid).is_some() => {
                // Declared again in the meantime.
                self.actual.add_pod(&uid);
            }
            Finished::PodRemoved => {}
        }
    }

    fn lookup(&self) -> WorldLookup<'_> {
        WorldLookup {
            dependencies: &self.dependencies,
            actual: &self.actual,
        }
    }

    /// The pods whose volumes are desired.
    fn applied_pods(&self) -> impl Iterator<Item = (&PodUid, &PodVolumeSpec)> {
        let uids = self.actual.uids();
        uids.filter_map(|uid| Some((uid, self.applied(uid)?)))
    }

    /// The volumes of a pod, if they are desired.
    fn applied(&self, uid: &str) -> Option<&PodVolumeSpec> {
        self.actual.pod(uid)?;
        let spec = self.desired.applied(uid)?;
        (!self.desired.may_tear_down(uid)).then_some(spec)
    }

    /// Finds the objects, tokens and certificates that the volumes of a pod depend on now.
    fn refresh_references(&mut self, uid: &PodUid) {
        let Some(spec) = self.desired.applied(uid) else {
            return;
        };
        let tokens = spec.tokens().cloned().collect();
        let recording = RecordingLookup::new(self.lookup(), spec.objects(), tokens);
        for volume in &spec.volumes {
            resolve(volume, &recording);
        }
        let (objects, tokens) = recording.into_recorded();
        let certificates = spec.certificates().cloned().collect();
        self.dependencies.set_references(uid, objects);
        self.dependencies.set_credentials(uid, tokens, certificates);
    }

    fn refresh_all(&mut self) {
        let uids: Vec<PodUid> = self.actual.uids().cloned().collect();
        for uid in &uids {
            self.refresh_references(uid);
            self.requeue(uid);
        }
    }

    fn requeue(&mut self, uid: &PodUid) {
        self.pending.requeue(uid);
        self.mark_changed(uid);
    }

    /// What is derived from the pod's volumes is computed again.
    fn mark_changed(&mut self, uid: &PodUid) {
        self.published.mark_changed(uid);
        self.claims.mark_changed(uid);
    }

    fn requeue_all(&mut self) {
        let uids = self.actual.uids().chain(self.desired.uids());
        let uids: Vec<PodUid> = uids.cloned().collect();
        uids.iter().for_each(|uid| self.requeue(uid));
    }

    /// Requeues the pods that may wait for a persistent volume that another pod had.
    fn requeue_waiting_pods(&mut self, id: &VolumeId) {
        if !has_persistent_volumes(&id.plugin) {
            return;
        }
        let has_claim = |uid: &&PodUid| {
            let spec = self.desired.applied(uid);
            spec.is_some_and(|spec| spec.claims().next().is_some())
        };
        let waiting: Vec<PodUid> = self.actual.uids().filter(has_claim).cloned().collect();
        waiting.iter().for_each(|uid| self.requeue(uid));
    }
}
