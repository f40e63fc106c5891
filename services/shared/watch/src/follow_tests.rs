//! What a newer server says and this build does not know: the last known state stays, and nothing counts
//! as removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::{self as eviction, WatchPressureResponse};
use polylet_wire::known::Known;
use polylet_wire::notice::v1::{Notice, WatchNoticesResponse};
use polylet_wire::pleg::v1::{Container, PodState, WatchPodStatesResponse};
use polylet_wire::podconfig::v1::{Pod, WatchPodsResponse};
use polylet_wire::prober::v1::{ProbeStatus, ProbeStatusKey, WatchProbeStatusesResponse};
use polylet_wire::sync::v1::{PodSync, WatchPodSyncResponse};
use polylet_wire::volume::v1::{PodVolumes, Volume, WatchPodVolumesResponse};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

/// A number that no enum has.
const NEW: i32 = 77;

struct NoObserver;

impl StreamObserver for NoObserver {
    fn received(&self, _: &'static str, _: &str, _: bool) {}
    fn lost(&self, _: &'static str, _: &str) {}
    fn value_lost(&self, _: &'static str) {}
    fn unknown(&self, _: &'static str, _: Option<&'static str>) {}
}

/// What a server does; items are numbers, and whether this build knows their value.
#[derive(Clone, Debug)]
enum ServerStep {
    /// It restarts with these items: a snapshot.
    Restart(BTreeMap<u8, bool>),
    Upsert(u8, bool),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<ServerStep>> {
    let items = || prop::collection::btree_map(0..4u8, any::<bool>(), 0..4);
    let step = prop_oneof![
        2 => items().prop_map(ServerStep::Restart),
        3 => (0..4u8, any::<bool>()).prop_map(|(item, known)| ServerStep::Upsert(item, known)),
        2 => (0..4u8).prop_map(ServerStep::Remove),
    ];
    (items(), prop::collection::vec(step, 0..12)).prop_map(|(first, rest)| {
        let first = ServerStep::Restart(first);
        [first].into_iter().chain(rest).collect()
    })
}

/// Follows a server; `item` makes the item of a number.
fn follow_steps<W: WatchWire>(
    steps: &[ServerStep],
    item: fn(u8, bool) -> W::Item,
) -> Result<(), TestCaseError>
where
    W::Key: Debug,
    W::Item: Known,
{
    type Opened<W> = Result<Response<Streaming<W>>, Status>;
    let mut follower = KeyedFollower {
        peer: NoObserver,
        stream: W::STREAM,
        open: |_| std::future::pending::<Opened<W>>(),
        replica: Replica::new(),
        queue: VecDeque::new(),
        connection: Connection::new(),
        incarnation: String::new(),
        unknown: None,
    };
    let mut server: BTreeMap<u8, bool> = BTreeMap::new();
    let mut consumer: BTreeSet<W::Key> = BTreeSet::new();
    let mut synced = false;
    for (revision, step) in steps.iter().enumerate() {
        let changes = match step {
            ServerStep::Restart(items) => {
                server.clone_from(items);
                let items = items.iter().map(|(number, known)| item(*number, *known));
                let reset = [Change::Reset];
                reset.into_iter().chain(items.map(Change::Upsert)).collect()
            }
            ServerStep::Upsert(number, known) => {
                server.insert(*number, *known);
                vec![Change::Upsert(item(*number, *known))]
            }
            ServerStep::Remove(number) => {
                server.remove(number);
                vec![Change::Remove(W::key(&item(*number, true)))]
            }
        };
        let end = Change::Synced(Position {
            incarnation: "1".to_owned(),
            revision: revision as u64,
        });
        for change in changes.into_iter().chain([end]) {
            follower.handle_message(W::from_change(change));
        }
        let present: BTreeSet<W::Key> = server.keys().map(|n| W::key(&item(*n, true))).collect();
        for update in follower.queue.drain(..) {
            match update {
                Update::Upsert(key, item) => {
                    prop_assert_eq!(item.into_value().unknown(), None, "handed on");
                    consumer.insert(key);
                }
                Update::Remove(key) => {
                    prop_assert!(!present.contains(&key), "{:?} is there", key);
                    consumer.remove(&key);
                }
                Update::Synced => synced = true,
                Update::Stale(_) => synced = false,
            }
        }
        if synced {
            prop_assert!(
                server.values().all(|known| *known),
                "synced with {server:?}"
            );
            prop_assert_eq!(&consumer, &present);
        }
        prop_assert_eq!(follower.unknown.is_some(), follower.replica.has_unknown());
    }
    if follower.replica.has_unknown() {
        // A server of this build brings it in step again.
        let known = server.keys().map(|number| (*number, true)).collect();
        let end = [ServerStep::Restart(known)];
        let steps: Vec<_> = steps.iter().cloned().chain(end).collect();
        return follow_steps::<W>(&steps, item);
    }
    prop_assert!(synced);
    Ok(())
}

fn reference(number: u8) -> Option<PodRef> {
    Some(PodRef {
        uid: number.to_string(),
        ..PodRef::default()
    })
}

fn value(known: bool) -> i32 {
    if known { 1 } else { NEW }
}

fn pod(number: u8, known: bool) -> Pod {
    let (r#ref, terminal_phase) = (reference(number), value(known));
    Pod {
        r#ref,
        terminal_phase,
        ..Pod::default()
    }
}

fn pod_state(number: u8, known: bool) -> PodState {
    let phase = value(known);
    let containers = vec![Container {
        phase,
        ..Container::default()
    }];
    PodState {
        r#ref: reference(number),
        containers,
        ..PodState::default()
    }
}

fn pod_sync(number: u8, known: bool) -> PodSync {
    PodSync {
        r#ref: reference(number),
        phase: value(known),
        ..PodSync::default()
    }
}

fn pod_volumes(number: u8, known: bool) -> PodVolumes {
    let phase = value(known);
    let volumes = vec![Volume {
        phase,
        ..Volume::default()
    }];
    PodVolumes {
        r#ref: reference(number),
        volumes,
        ..PodVolumes::default()
    }
}

fn probe_status(number: u8, known: bool) -> ProbeStatus {
    let container_id = number.to_string();
    let key = ProbeStatusKey {
        container_id,
        ..ProbeStatusKey::default()
    };
    ProbeStatus {
        key: Some(key),
        outcome: value(known),
        ..ProbeStatus::default()
    }
}

fn notice(number: u8, known: bool) -> Notice {
    let (id, severity) = (number.to_string(), value(known));
    Notice {
        id,
        severity,
        ..Notice::default()
    }
}

/// One that is not known is of another kind: even its key is unknown.
fn pressure(number: u8, known: bool) -> eviction::Pressure {
    let (pod, resource) = (reference(number), 1);
    let eviction = eviction::Eviction {
        pod,
        resource,
        ..Default::default()
    };
    let fact = known.then_some(eviction::pressure::Fact::Eviction(eviction));
    eviction::Pressure { fact }
}

proptest! {
    #[test]
    fn what_is_not_known_is_never_removed_nor_handed_on(steps in steps()) {
        follow_steps::<WatchPodsResponse>(&steps, pod)?;
        follow_steps::<WatchPodStatesResponse>(&steps, pod_state)?;
        follow_steps::<WatchPodSyncResponse>(&steps, pod_sync)?;
        follow_steps::<WatchPodVolumesResponse>(&steps, pod_volumes)?;
        follow_steps::<WatchProbeStatusesResponse>(&steps, probe_status)?;
        follow_steps::<WatchNoticesResponse>(&steps, notice)?;
        follow_steps::<WatchPressureResponse>(&steps, pressure)?;
    }
}
