//! The node as pods see it: its object in the cluster, its runtime, pressure and resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_watch::Value;
use polylet_wire::eviction::v1::{Condition, Resource};
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::podconfig::v1::WatchNodeResponse;
use polylet_wire::time::from_wire_opt;

use super::resource_usage;
use crate::config::Config;
use crate::convert;
use crate::core::checkpoint::PodCheckpoint;
use crate::core::node_resources::NodeResources;
use crate::core::view::{NodePressure, NodeState};
use crate::runtime::userns::RuntimeHandlers;

/// The reason while pleg has not reported yet.
const NOT_SYNCED: &str = "not reported yet";

/// Node state for decisions, and node facts that steps pass on.
pub(crate) struct NodeContext {
    pub(crate) state: NodeState,
    /// Runtime handlers and whether they support user namespaces.
    pub(crate) runtime_handlers: Arc<RuntimeHandlers>,
    /// The addresses in the node object's status, one per family.
    pub(crate) host_ips: Arc<[String]>,
}

impl NodeContext {
    /// Before any update. Pods with a checkpoint keep their resources meanwhile.
    pub(crate) fn new(config: &Config, checkpoints: &BTreeMap<String, PodCheckpoint>) -> Self {
        NodeContext {
            state: NodeState {
                all_synced: false,
                pleg_synced: false,
                runtime: Err(NOT_SYNCED.to_owned()),
                network: Err(NOT_SYNCED.to_owned()),
                volumes_synced: false,
                pressure: NodePressure::default(),
                container_reclaim: None,
                resources: NodeResources {
                    allocated: resource_usage::restored(checkpoints),
                    ..config.node_resources.clone()
                },
                max_restart_backoff: config.max_crash_loop_backoff,
            },
            runtime_handlers: Arc::default(),
            host_ips: Arc::default(),
        }
    }

    /// Handles the runtime's status; true when its conditions have changed.
    pub(crate) fn handle_runtime(&mut self, value: Value<WatchRuntimeResponse>) -> bool {
        // The last value holds: new steps stop anyway while pleg is not synced.
        let Value::Current(status) = value else {
            return false;
        };
        self.state.resources.supports_strict_supplemental_groups =
            status.supplemental_groups_policy;
        let handlers = status.handlers.into_iter();
        let handlers = handlers.map(|handler| (handler.name, handler.user_namespaces));
        self.runtime_handlers = Arc::new(handlers.collect());
        let condition = |ready: bool, reason: String| if ready { Ok(()) } else { Err(reason) };
        let runtime = condition(status.ready, status.reason);
        let network = condition(status.network_ready, status.network_reason);
        let changed = (&self.state.runtime, &self.state.network) != (&runtime, &network);
        self.state.runtime = runtime;
        self.state.network = network;
        changed
    }

    /// Handles this node's object; true when admission depends on the change.
    pub(crate) fn handle_node_object(&mut self, value: Value<WatchNodeResponse>) -> bool {
        // The last value holds.
        let Value::Current(response) = value else {
            return false;
        };
        match convert::node_object(&response) {
            Ok((object, host_ips)) => {
                self.host_ips = host_ips.into();
                let changed = self.state.resources.node_object != object;
                self.state.resources.node_object = object;
                changed
            }
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::error!(error, "invalid node object; keeping the last one");
                false
            }
        }
    }

    /// Handles a node pressure condition; true when it brings a new request to remove dead containers.
    #[must_use]
    pub(crate) fn handle_condition(&mut self, condition: &Condition) -> bool {
        let pressure = &mut self.state.pressure;
        match condition.resource() {
            Resource::Memory => pressure.memory = condition.under_pressure,
            Resource::Disk => pressure.disk = condition.under_pressure,
            Resource::Pids => pressure.pids = condition.under_pressure,
            Resource::Unspecified => {}
        }
        let requested = condition.container_reclaim.as_ref();
        let requested = requested.and_then(|request| from_wire_opt(request.requested_at.as_ref()));
        let Some(requested) = requested.filter(|_| condition.resource() == Resource::Disk) else {
            return false;
        };
        self.state.container_reclaim.replace(requested) != Some(requested)
    }
}
