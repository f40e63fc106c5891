//! Follows this node's object in the cluster at pod-config.

use futures::{Stream, StreamExt};
use polylet_kit::{CancellationToken, report};
use polylet_watch::Value;
use polylet_wire::podconfig::v1::WatchNodeResponse;
use tokio::sync::mpsc;

use crate::convert;
use crate::run::Input;

/// Tells what the cluster says of the node, until the process ends.
pub async fn follow(
    mut told: impl Stream<Item = Value<WatchNodeResponse>> + Unpin,
    inputs: mpsc::Sender<Input>,
    drain: CancellationToken,
) {
    loop {
        let value = tokio::select! {
            () = drain.cancelled() => return,
            value = told.next() => value,
        };
        let said = match value {
            Some(Value::Current(said)) => said,
            // What was true last holds.
            Some(Value::Stale(_)) => continue,
            None => return,
        };
        match convert::place(said) {
            Ok(place) => {
                if inputs.send(Input::Placed(place)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let error = report(&error);
                tracing::error!(
                    error,
                    "this node's object cannot be read: it stays as it was"
                );
            }
        }
    }
}
