//! Follows this node's Node object at pod-config.

use futures::{Stream, StreamExt};
use polylet_kit::{CancellationToken, report};
use polylet_watch::Value;
use polylet_wire::podconfig::v1::WatchNodeResponse;
use tokio::sync::mpsc;

use crate::convert;
use crate::input::Input;

/// Sends the Node object, until the process ends.
pub async fn follow(
    mut values: impl Stream<Item = Value<WatchNodeResponse>> + Unpin,
    inputs: mpsc::Sender<Input>,
    drain: CancellationToken,
) {
    loop {
        let value = tokio::select! {
            () = drain.cancelled() => return,
            value = values.next() => value,
        };
        let response = match value {
            Some(Value::Current(response)) => response,
            // The last state stays in force.
            Some(Value::Stale(_)) => continue,
            None => return,
        };
        match convert::node_info(response) {
            Ok(info) => {
                if inputs.send(Input::NodeInfo(info)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let error = report(&error);
                tracing::error!(error, "invalid Node object; keeping the last one");
            }
        }
    }
}
