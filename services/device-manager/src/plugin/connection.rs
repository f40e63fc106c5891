//! The connection to a registered plugin, for as long as it lists its devices.

use std::path::PathBuf;

use polylet_kit::{CancellationToken, report};
use tokio::sync::{mpsc, oneshot};

use super::calls::{PluginCallError, PluginClient};
use super::input::{PluginEvent, PluginInput};
use crate::convert;

/// A plugin to connect to.
#[derive(Debug)]
pub(crate) struct PluginConnection {
    /// The resource that it offers.
    pub(crate) resource: String,
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// Tells this connection from others for the resource.
    pub(crate) id: u64,
    /// Ends the connection.
    pub(crate) closed: CancellationToken,
    /// Where the result goes when the plugin has registered itself.
    pub(crate) response: Option<oneshot::Sender<Result<(), String>>>,
}

/// Connects and follows the devices. When the plugin ends its list, the connection is over, and not
/// tried again: the plugin registers anew, as upstream has it.
pub(crate) async fn run(
    connection: PluginConnection,
    inputs: mpsc::Sender<PluginInput>,
    drain: CancellationToken,
) {
    let PluginConnection {
        resource,
        socket,
        id,
        closed,
        response,
    } = connection;
    let client = PluginClient::new(&resource, &socket);
    let follow = async {
        let connected = connect(&client, response, &inputs, &resource, id).await;
        match connected {
            Ok(()) => follow_devices(&client, &inputs, &resource, id).await,
            Err(error) => Err(error),
        }
    };
    let ended = tokio::select! {
        // What the plugin offers does not change by the end of this process.
        () = drain.cancelled() => return,
        () = closed.cancelled() => return,
        ended = follow => ended,
    };
    match ended {
        Ok(()) => tracing::info!(resource, "device plugin ended its list of devices"),
        Err(error) => {
            let error = report(&error);
            tracing::warn!(resource, error, "device plugin is no longer available");
        }
    }
    send(&inputs, resource, id, PluginEvent::Disconnected).await;
}

async fn connect(
    client: &PluginClient,
    response: Option<oneshot::Sender<Result<(), String>>>,
    inputs: &mpsc::Sender<PluginInput>,
    resource: &str,
    id: u64,
) -> Result<(), PluginCallError> {
    let options = client.options().await;
    let result = match options {
        Ok(options) => {
            let event = PluginEvent::Connected(options, client.clone());
            send(inputs, resource.to_owned(), id, event).await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    if let Some(response) = response {
        // The plugin may have cancelled its call.
        let _ = response.send(result.as_ref().map(drop).map_err(|error| report(error)));
    }
    result
}

async fn follow_devices(
    client: &PluginClient,
    inputs: &mpsc::Sender<PluginInput>,
    resource: &str,
    id: u64,
) -> Result<(), PluginCallError> {
    let mut lists = client.list_and_watch().await?;
    while let Some(list) = lists.message().await.map_err(PluginCallError::of_stream)? {
        let event = PluginEvent::Listed(convert::devices(list));
        send(inputs, resource.to_owned(), id, event).await;
    }
    Ok(())
}

async fn send(inputs: &mpsc::Sender<PluginInput>, resource: String, id: u64, event: PluginEvent) {
    // The event loop ends only with the process.
    let _ = inputs
        .send(PluginInput::Event {
            resource,
            id,
            event,
        })
        .await;
}
