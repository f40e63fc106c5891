//! Calls to a device plugin, each with a deadline.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use polylet_kit::channel;
use polylet_kit::rpc_status::{go_name, status_name};
use polylet_wire::deviceplugin::v1beta1 as wire;
use polylet_wire::deviceplugin::v1beta1::device_plugin_client::DevicePluginClient;
use thiserror::Error;
use tonic::{Code, Response, Status, Streaming};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::convert;
use crate::core::allocation::PreferenceRequest;
use crate::core::inventory::PluginOptions;

/// The deadline of a choice among devices.
const PREFERENCE_DEADLINE: Duration = Duration::from_secs(30);
/// The deadline of an allocation, for which upstream has none.
const ALLOCATE_DEADLINE: Duration = Duration::from_secs(60);
/// Upstream's deadline of `PreStartContainer`.
const PRE_START_DEADLINE: Duration = Duration::from_secs(30);

/// A call that failed, in upstream's words.
#[derive(Debug, Error)]
#[error("{prefix}rpc error: code = {} desc = {}", go_name(status.code()), status.message())]
pub(crate) struct PluginCallError {
    prefix: &'static str,
    status: Box<Status>,
}

impl PluginCallError {
    /// The end of the list of devices.
    pub(super) fn of_stream(status: Status) -> Self {
        PluginCallError {
            prefix: "",
            status: Box::new(status),
        }
    }
}

/// The connection to a plugin. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct PluginClient {
    resource: String,
    client: DevicePluginClient<tonic::transport::Channel>,
}

impl PluginClient {
    /// A client that connects with its first call.
    pub(crate) fn new(resource: &str, socket: &Path) -> Self {
        PluginClient {
            resource: resource.to_owned(),
            client: DevicePluginClient::new(channel::unix(socket)),
        }
    }

    /// Connects, and asks for what the plugin wants to be called for.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) async fn options(
        &self,
        deadline: Duration,
    ) -> Result<PluginOptions, PluginCallError> {
        let mut client = self.client.clone();
        let response = client.get_device_plugin_options(wire::Empty {});
        let prefix = "failed to get device plugin options: ";
        let options = self.call("GetDevicePluginOptions", prefix, deadline, response);
        Ok(convert::options(&options.await?))
    }

    /// Starts to list the devices. The stream has no deadline.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) async fn list_and_watch(
        &self,
    ) -> Result<Streaming<wire::ListAndWatchResponse>, PluginCallError> {
        let response = self.client.clone().list_and_watch(wire::Empty {}).await;
        let response = response.map(Response::into_inner);
        response.map_err(PluginCallError::of_stream)
    }

    /// Has the plugin choose among devices.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) async fn preferred(
        &self,
        request: &PreferenceRequest,
    ) -> Result<Vec<String>, PluginCallError> {
        let container = wire::ContainerPreferredAllocationRequest {
            available_device_i_ds: request.available.iter().cloned().collect(),
            must_include_device_i_ds: request.required.iter().cloned().collect(),
            allocation_size: i32::try_from(request.count).unwrap_or(i32::MAX),
        };
        let mut client = self.client.clone();
        let response = client.get_preferred_allocation(wire::PreferredAllocationRequest {
            container_requests: vec![container],
        });
        let prefix = "device plugin GetPreferredAllocation rpc failed with err: ";
        let method = "GetPreferredAllocation";
        let response = self
            .call(method, prefix, PREFERENCE_DEADLINE, response)
            .await?;
        let containers = response.container_responses.into_iter();
        Ok(containers.map(|c| c.device_i_ds).next().unwrap_or_default())
    }

    /// Has the plugin prepare devices for a container; `None` if it answers for no container.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) async fn allocate(
        &self,
        devices: &BTreeSet<String>,
    ) -> Result<Option<wire::ContainerAllocateResponse>, PluginCallError> {
        let container = wire::ContainerAllocateRequest {
            devices_ids: devices.iter().cloned().collect(),
        };
        let mut client = self.client.clone();
        let response = client.allocate(wire::AllocateRequest {
            container_requests: vec![container],
        });
        let response = self
            .call("Allocate", "", ALLOCATE_DEADLINE, response)
            .await?;
        Ok(response.container_responses.into_iter().next())
    }

    /// Has the plugin prepare a container's devices for its next start.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) async fn pre_start(
        &self,
        devices: &BTreeSet<String>,
    ) -> Result<(), PluginCallError> {
        let mut client = self.client.clone();
        let response = client.pre_start_container(wire::PreStartContainerRequest {
            devices_ids: devices.iter().cloned().collect(),
        });
        let prefix = "device plugin PreStartContainer rpc failed with err: ";
        let method = "PreStartContainer";
        let response = self.call(method, prefix, PRE_START_DEADLINE, response);
        response.await.map(drop)
    }

    async fn call<T>(
        &self,
        method: &'static str,
        prefix: &'static str,
        deadline: Duration,
        response: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, PluginCallError> {
        let span = self.call_span(method);
        let response = tokio::time::timeout(deadline, response.instrument(span.clone()));
        let late = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
        let result = response.await.unwrap_or_else(late);
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        span.record("rpc.response.status_code", status_name(code));
        if result.is_err() {
            span.record("error.type", status_name(code));
            span.record("otel.status_code", "ERROR");
        }
        result
            .map(Response::into_inner)
            .map_err(|status| PluginCallError {
                prefix,
                status: Box::new(status),
            })
    }

    /// The span of a call within the present one; none outside of spans.
    fn call_span(&self, method: &str) -> Span {
        if Span::current().is_disabled() {
            return Span::none();
        }
        tracing::info_span!(
            "device_plugin.call",
            otel.name = format!("device_plugin.{method}"),
            otel.kind = "client",
            rpc.system.name = "grpc",
            rpc.method = format!("v1beta1.DevicePlugin/{method}"),
            rpc.response.status_code = Empty,
            polylet.device.resource = self.resource,
            network.transport = "unix",
            error.type = Empty,
            otel.status_code = Empty,
        )
    }
}
