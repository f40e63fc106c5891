//! Streams of pods with a manifest mask.

use std::collections::BTreeMap;
use std::future::ready;
use std::hash::{BuildHasher, RandomState};

use futures::{Stream, StreamExt};
use polylet_model::hash::Fnv1a128;
use polylet_watch::Digest;
use polylet_wire::podconfig::v1::watch_pods_response::Change;
use polylet_wire::podconfig::v1::{Pod, WatchPodsResponse};
use tonic::Status;

use crate::core::mask::ManifestMask;

/// Prunes the manifests of a stream. A change that is not visible through the mask is not sent, so
/// that digest and cause of a pod are those of its last visible change.
pub(super) fn pods(
    stream: impl Stream<Item = Result<WatchPodsResponse, Status>> + Send + 'static,
    mask: ManifestMask,
) -> impl Stream<Item = Result<WatchPodsResponse, Status>> + Send + 'static {
    let mut pruner = StreamPruner {
        mask,
        sent: BTreeMap::new(),
        digest_keys: RandomState::new(),
    };
    stream.filter_map(move |response| {
        ready(match response {
            Ok(response) => pruner.prune(response).transpose(),
            Err(status) => Some(Err(status)),
        })
    })
}

struct StreamPruner {
    mask: ManifestMask,
    /// Digests of the pods as last sent, by a digest of the uid, which theirs has, too.
    sent: BTreeMap<u64, u64>,
    digest_keys: RandomState,
}

impl StreamPruner {
    /// The response to send, if any.
    fn prune(&mut self, response: WatchPodsResponse) -> Result<Option<WatchPodsResponse>, Status> {
        let change = match response.change {
            Some(Change::Upsert(pod)) => {
                let Some(pod) = self.prune_pod(pod)? else {
                    return Ok(None);
                };
                Some(Change::Upsert(pod))
            }
            Some(Change::Remove(pod)) => {
                self.sent.remove(&self.digest_keys.hash_one(&pod.uid));
                Some(Change::Remove(pod))
            }
            Some(Change::Reset(reset)) => {
                // A snapshot has to be complete.
                self.sent.clear();
                Some(Change::Reset(reset))
            }
            other => other,
        };
        Ok(Some(WatchPodsResponse { change }))
    }

    fn prune_pod(&mut self, pod: Pod) -> Result<Option<Pod>, Status> {
        let pruned = self.mask.prune(&pod.manifest);
        let manifest = pruned.map_err(|_| Status::internal("a stored manifest is invalid"))?;
        let mut hash = Fnv1a128::default();
        hash.update(&manifest);
        let pod = Pod {
            digest: format!("{:032x}", hash.finish()),
            manifest: manifest.into(),
            ..pod
        };
        let uid = pod.r#ref.as_ref().map(|pod| pod.uid.as_str());
        let uid = self.digest_keys.hash_one(uid.unwrap_or_default());
        // The digest stands for the manifest, and a cause alone is no change.
        let identity = Pod {
            manifest: Default::default(),
            cause: None,
            ..pod.clone()
        };
        let identity = identity.digest(&self.digest_keys);
        let before = self.sent.insert(uid, identity);
        Ok((before != Some(identity)).then_some(pod))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use polylet_wire::common::v1::{Cause, PodRef, Reset, Synced};
    use serde_json::{Value, json};

    use super::*;

    fn upsert(image: &str, label: &str) -> Change {
        let manifest = json!({
            "metadata": {"uid": "u", "labels": {"l": label}},
            "spec": {"containers": [{"image": image, "args": []}]},
        });
        Change::Upsert(Pod {
            r#ref: Some(PodRef {
                uid: "u".into(),
                ..PodRef::default()
            }),
            digest: format!("{image}{label}"),
            manifest: manifest.to_string().into(),
            cause: Some(Cause {
                traceparent: format!("{image}{label}"),
                ..Cause::default()
            }),
            ..Pod::default()
        })
    }

    #[tokio::test]
    async fn invisible_changes_are_not_sent() {
        let stale = |change| match change {
            Change::Upsert(pod) => Change::Upsert(Pod {
                stale_since: Some(Default::default()),
                ..pod
            }),
            other => other,
        };
        let changes = [
            Change::Reset(Reset {}),
            upsert("i", "a"),
            Change::Synced(Synced::default()),
            upsert("i", "b"),
            Change::Synced(Synced::default()),
            upsert("j", "b"),
            stale(upsert("j", "c")),
            Change::Remove(PodRef {
                uid: "u".into(),
                ..PodRef::default()
            }),
            upsert("j", "c"),
            Change::Reset(Reset {}),
            upsert("j", "d"),
        ];
        let responses = changes.map(|change| {
            Ok(WatchPodsResponse {
                change: Some(change),
            })
        });
        let mask = ManifestMask::new(["spec.containers.image"])
            .unwrap()
            .unwrap();
        let sent: Vec<String> = pods(stream::iter(responses), mask)
            .map(|response| match response.unwrap().change.unwrap() {
                Change::Reset(_) => "reset".to_owned(),
                Change::Synced(_) => "synced".to_owned(),
                Change::Remove(_) => "remove".to_owned(),
                Change::Upsert(pod) => {
                    let manifest: Value = serde_json::from_slice(&pod.manifest).unwrap();
                    assert_eq!(manifest["metadata"], json!({"uid": "u"}));
                    let container = &manifest["spec"]["containers"][0];
                    assert_eq!(container.as_object().unwrap().len(), 1);
                    pod.cause.unwrap().traceparent
                }
            })
            .collect()
            .await;
        assert_eq!(
            sent,
            [
                "reset", "ia", "synced", "synced", "jb", "jc", "remove", "jc", "reset", "jd"
            ]
        );
    }
}
