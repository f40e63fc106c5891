//! Large inputs: pods and texts with one part repeated, as somebody would write them who wants to
//! keep a service busy.

use serde_json::Value;

use super::{manifests, services, text as texts, volumes};
use crate::input::{frame, select};
use crate::scale::scale;

/// The size of the repeated part.
const PART_BYTES: usize = 128 << 10;

/// A pod as JSON; the first two bytes choose the part that is repeated, their highest bits who reads
/// it: each has the time of one input.
pub(super) fn pod(data: &[u8]) {
    let [low, high, json @ ..] = data else {
        return;
    };
    let Ok(mut pod) = serde_json::from_slice::<Value>(json) else {
        return;
    };
    let part = usize::from(u16::from_le_bytes([*low, *high]));
    scale(&mut pod, part, PART_BYTES);
    let json = pod.to_string();
    match high >> 5 {
        0..=2 => manifests::consume(json.as_bytes()),
        3 => manifests::manifest(format!("0{json}").as_bytes()),
        4 => services::coordinator::run(&last_frame(b'0', &json)),
        5 => services::status_reporter::run(&last_frame(b'0', &json)),
        6 => {
            services::prober::run(&last_frame(b'0', &json));
            services::eviction::run(&last_frame(b'0', &json));
        }
        _ => volumes::volume_manager(&last_frame(b'1', &json)),
    }
}

fn last_frame(kind: u8, json: &str) -> Vec<u8> {
    frame(kind, json.as_bytes())
}

/// A text for the selected parser, repeated.
pub(super) fn text(data: &[u8]) {
    let (_, content) = select(data, 1);
    let Some(kind) = data.first() else {
        return;
    };
    let copies = PART_BYTES / content.len().max(1);
    let mut repeated = vec![*kind];
    repeated.extend(content.repeat(copies));
    texts::text(&repeated);
}
