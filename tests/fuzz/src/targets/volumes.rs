//! volume-manager: volumes of arbitrary pods, with arbitrary objects, drivers and results.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use polylet_volume_manager::convert;
use polylet_volume_manager::core::certificates::CertificateKey;
use polylet_volume_manager::core::layout::Layout;
use polylet_volume_manager::core::manifest;
use polylet_volume_manager::core::operation::OperationResult;
use polylet_volume_manager::core::pod::PodName;
use polylet_volume_manager::core::reference_key::ReferenceKey;
use polylet_volume_manager::core::spec::Allocatable;
use polylet_volume_manager::core::state_of_world::{
    StateOfWorld, SubscriptionChange, SubscriptionChanges,
};
use polylet_volume_manager::core::tokens::PodTokenKey;
use polylet_wire::podconfig::v1 as podconfig;
use polylet_wire::volume::v1 as wire;

use super::manifests::now;
use crate::input::{Frame, frames, text};

/// What the state of world has subscribed to.
#[derive(Default)]
struct VolumeSubscriptions {
    objects: BTreeSet<ReferenceKey>,
    tokens: BTreeSet<PodTokenKey>,
    certificates: BTreeSet<CertificateKey>,
}

impl VolumeSubscriptions {
    fn apply(&mut self, changes: SubscriptionChanges) {
        apply(&mut self.objects, changes.objects);
        apply(&mut self.tokens, changes.tokens);
        apply(&mut self.certificates, changes.certificates);
    }
}

fn apply<K: Ord>(keys: &mut BTreeSet<K>, changes: Vec<SubscriptionChange<K>>) {
    for change in changes {
        match change {
            SubscriptionChange::Subscribe(key) => drop(keys.insert(key)),
            SubscriptionChange::Unsubscribe(key) => drop(keys.remove(&key)),
        }
    }
}

/// Runs the state of world with the inputs of the frames.
pub(super) fn volume_manager(data: &[u8]) {
    let mut now = now();
    let mut state = StateOfWorld::new(Layout::new("/root"), Vec::new()).with_node_name("node-1");
    let mut subscribed = VolumeSubscriptions::default();
    let mut operations = Vec::new();
    let mut sequence = 0;
    for frame in frames(data).iter().take(64) {
        match frame.select(10) {
            0 | 1 => {
                sequence += 1;
                declare(&mut state, sequence, frame);
            }
            2 => {
                sequence += 1;
                // Stale calls are errors.
                let _ = state.release("client", sequence, pod_name(frame));
            }
            3 => drop(state.complete("client", u32::from(frame.kind >> 6))),
            4 => object(&mut state, &subscribed, frame),
            5 => {
                if let Some(response) = frame.message::<podconfig::WatchPodCertificateResponse>() {
                    for key in &subscribed.certificates {
                        convert::certificate_request(key);
                        state.update_certificate(key, convert::certificate(response.clone()));
                    }
                }
            }
            6 => {
                if let Some(response) = frame.message::<podconfig::IssueTokenResponse>() {
                    for key in &subscribed.tokens {
                        convert::token_request(key);
                        let (token, _) = convert::token(response.clone(), now);
                        state.update_token(key, Ok(token), now);
                    }
                }
            }
            7 => {
                if let Some(Ok(info)) = frame.message().map(convert::node_info) {
                    state.set_node_info(info);
                }
            }
            8 => {
                let seconds = frame.content.iter().map(|byte| i64::from(*byte)).sum();
                now = now
                    .checked_add(SignedDuration::from_secs(seconds))
                    .unwrap_or(now);
            }
            _ => {
                for operation in operations.drain(..) {
                    let result = match frame.content.first() {
                        None | Some(0) => Ok(()),
                        Some(_) => Err(text(frame.content).into()),
                    };
                    let finished = OperationResult { operation, result };
                    state.finish_operation(finished, now);
                }
            }
        }
        operations.extend(state.start_operations(now));
        subscribed.apply(state.take_subscription_changes());
        for (uid, status) in state.take_changes(now) {
            state.desired_volumes(&uid);
            state.metadata_to_store(&uid);
            status.map(|status| convert::pod_volumes(&status, None));
        }
        state.refresh_claims();
        convert::claim_sizes(&state);
        convert::volumes_in_use(&state);
        convert::drivers(&state);
    }
    state.set_driver(Path::new("/none.sock"), None);
}

fn pod_name(frame: &Frame<'_>) -> PodName {
    PodName {
        uid: format!("u{}", frame.kind >> 6).into(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    }
}

/// Declares a pod by a manifest, or by a request.
fn declare(state: &mut StateOfWorld, sequence: u64, frame: &Frame<'_>) {
    let request = frame.message::<wire::ApplyPodRequest>();
    let name = request
        .as_ref()
        .and_then(|request| convert::pod_name(request.r#ref.clone()));
    let json = match (&request, frame.select(2)) {
        (Some(request), 0) => &request.manifest[..],
        _ => frame.content,
    };
    if let Ok(spec) = manifest::parse(json, Allocatable::default()) {
        let name = name.unwrap_or_else(|| pod_name(frame));
        // Stale calls are errors.
        let _ = state.apply("client", sequence, name, Arc::new(spec));
    }
}

/// An object, for all references to its kind.
fn object(state: &mut StateOfWorld, subscribed: &VolumeSubscriptions, frame: &Frame<'_>) {
    let response = frame
        .message()
        .unwrap_or_else(|| podconfig::WatchObjectResponse {
            state: Some(podconfig::watch_object_response::State::Manifest(
                frame.content.to_vec().into(),
            )),
        });
    for key in &subscribed.objects {
        convert::object_request(key);
        state.update_object(key, convert::object(key.kind, response.clone()));
    }
}
