//! Single messages: requests to the node API and to services, spans, objects in answers.

use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use polylet_wire::pleg::v1::WatchPodStatesResponse;
use polylet_wire::pleg::v1::watch_pod_states_response::Change;
use prost::Message;

use crate::input::{halves, select, text};

/// The message of the selected kind.
pub(in crate::targets) fn run(data: &[u8]) {
    let (kind, data) = select(data, 5);
    let (first, second) = halves(data);
    match kind {
        0 => {
            if let Ok(spans) = ResourceSpans::decode(data) {
                polylet_supervisor::fuzzing::spans(&spans, "default/web");
            }
        }
        1 => polylet_node_api::fuzzing::pod(first, second),
        2 => {
            if let Ok(summary) = serde_json::from_slice(data) {
                polylet_node_api::fuzzing::summary(&summary);
            }
        }
        3 => {
            let states = WatchPodStatesResponse::decode(first).ok();
            let states: Vec<_> = states
                .into_iter()
                .filter_map(|response| match response.change {
                    Some(Change::Upsert(state)) => Some(state),
                    _ => None,
                })
                .collect();
            if let Ok(counts) = Message::decode(second) {
                polylet_node_api::fuzzing::messages(&states, counts);
            }
        }
        _ => {
            if let Ok(spans) = ResourceSpans::decode(second) {
                polylet_supervisor::fuzzing::spans(&spans, text(first));
            }
        }
    }
}
