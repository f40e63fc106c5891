//! The connection to a registered plugin, for as long as it lists its devices.

use std::path::PathBuf;
use std::time::Duration;

use polylet_kit::{CancellationToken, report};
use polylet_schedule::{Backoff, BackoffPolicy};
use tokio::sync::{mpsc, oneshot};

use super::calls::{PluginCallError, PluginClient};
use super::input::{PluginEvent, PluginInput};
use crate::convert;

/// How long plugins have to answer when they are connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTiming {
    /// The deadline of the first call, which opens the connection.
    pub(crate) deadline: Duration,
    /// The delays before a plugin that has registered with a former process is called again.
    pub(crate) retry: BackoffPolicy,
}

impl Default for ConnectTiming {
    fn default() -> Self {
        ConnectTiming {
            deadline: Duration::from_secs(10),
            retry: BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

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
    /// How long the plugin has to answer.
    pub(crate) timing: ConnectTiming,
}

/// Connects and follows the devices. When the plugin ends its list, the connection is over, and not
/// tried again: the plugin registers anew, as upstream has it.
///
/// A plugin that has registered with a former process believes that it is registered. It is called again
/// until it answers or its socket is gone.
pub(crate) async fn run(
    mut connection: PluginConnection,
    inputs: mpsc::Sender<PluginInput>,
    drain: CancellationToken,
) {
    let response = connection.response.take();
    let follow = async {
        let client = match response {
            Some(response) => connection.connect_registered(response, &inputs).await,
            None => connection.reconnect(&inputs).await,
        };
        connection.follow_devices(&client?, &inputs).await
    };
    let ended = tokio::select! {
        // What the plugin offers does not change by the end of this process.
        () = drain.cancelled() => return,
        () = connection.closed.cancelled() => return,
        ended = follow => ended,
    };
    let resource = &connection.resource;
    match ended {
        Ok(()) => tracing::info!(resource, "device plugin ended its list of devices"),
        Err(error) => {
            let error = report(&error);
            tracing::warn!(resource, error, "device plugin is no longer available");
        }
    }
    connection.send(&inputs, PluginEvent::Disconnected).await;
}

impl PluginConnection {
    /// Connects to a plugin that has registered. The event loop stores its socket and answers it.
    async fn connect_registered(
        &self,
        response: oneshot::Sender<Result<(), String>>,
        inputs: &mpsc::Sender<PluginInput>,
    ) -> Result<PluginClient, PluginCallError> {
        let client = PluginClient::new(&self.resource, &self.socket);
        match client.options(self.timing.deadline).await {
            Ok(options) => {
                let event = PluginEvent::Connected {
                    options,
                    client: client.clone(),
                    response: Some(response),
                };
                self.send(inputs, event).await;
                Ok(client)
            }
            Err(error) => {
                // The plugin may have cancelled its call.
                let _ = response.send(Err(report(&error)));
                Err(error)
            }
        }
    }

    /// Connects to a plugin of a former process, as often as it takes while its socket exists.
    async fn reconnect(
        &self,
        inputs: &mpsc::Sender<PluginInput>,
    ) -> Result<PluginClient, PluginCallError> {
        let ConnectTiming { deadline, retry } = self.timing;
        let mut backoff = Backoff::new(retry.initial, retry.max);
        loop {
            let client = PluginClient::new(&self.resource, &self.socket);
            match client.options(deadline).await {
                Ok(options) => {
                    let event = PluginEvent::Connected {
                        options,
                        client: client.clone(),
                        response: None,
                    };
                    self.send(inputs, event).await;
                    return Ok(client);
                }
                Err(error) if !self.socket.exists() => return Err(error),
                Err(error) => {
                    let (resource, error) = (&self.resource, report(&error));
                    tracing::warn!(
                        resource,
                        error,
                        "device plugin does not answer; trying again"
                    );
                }
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    async fn follow_devices(
        &self,
        client: &PluginClient,
        inputs: &mpsc::Sender<PluginInput>,
    ) -> Result<(), PluginCallError> {
        let mut lists = client.list_and_watch().await?;
        while let Some(list) = lists.message().await.map_err(PluginCallError::of_stream)? {
            let event = PluginEvent::Listed(convert::devices(list));
            self.send(inputs, event).await;
        }
        Ok(())
    }

    async fn send(&self, inputs: &mpsc::Sender<PluginInput>, event: PluginEvent) {
        // The event loop ends only with the process.
        let _ = inputs
            .send(PluginInput::Event {
                resource: self.resource.clone(),
                id: self.id,
                event,
            })
            .await;
    }
}
