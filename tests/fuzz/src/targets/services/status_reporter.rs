//! status-reporter: statuses of pods out of arbitrary facts, and the patches between them.

use std::collections::BTreeMap;

use polylet_status_reporter::fuzzing;
use polylet_status_reporter::input::Input;
use polylet_status_reporter::state::State;
use polylet_status_reporter::status_store::StatusStore;
use polylet_watch::{Store, Update, Value};

use super::{SOURCES, pod_update, stream_update, uid};
use crate::input::{Frame, frames, halves};

/// Runs the state with the inputs of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let store = Store::new("fuzz");
    let mut state = State::new(BTreeMap::new(), StatusStore::new(store));
    for source in SOURCES {
        state.handle_input(Input::Pod(source, Update::Synced));
    }
    state.handle_input(Input::PodDevices(Update::Synced));
    for frame in frames(data).iter().take(64) {
        if let Some(input) = input(frame) {
            state.handle_input(input);
            state.reconcile(|| vec!["192.168.0.1".to_owned()]);
        }
    }
    state.statuses();
}

fn input(frame: &Frame<'_>) -> Option<Input> {
    let uid = uid(frame);
    Some(match frame.select(14) {
        0 | 1 => {
            let source = SOURCES.get(usize::from(frame.select(2))).copied()?;
            Input::Pod(source, pod_update(frame, source))
        }
        2 => Input::Pod(SOURCES[0], Update::Upsert(uid, frame.message()?)),
        3 => Input::Pod(SOURCES[0], stream_update(frame, uid)),
        4 => Input::Sync(Box::new(Update::Upsert(uid, frame.message()?))),
        5 => Input::Sync(Box::new(stream_update(frame, uid))),
        6 => Input::RuntimeState(Update::Upsert(uid, frame.message()?)),
        7 => Input::RuntimeState(stream_update(frame, uid)),
        8 => {
            let key = (uid, "c1".to_owned(), i32::from(frame.kind % 4));
            Input::Probe(Update::Upsert(key, frame.message()?))
        }
        9 => Input::Runtime(Value::Current(frame.message()?)),
        10 => Input::Mirror(Update::Upsert(uid, frame.message()?)),
        11 => Input::Node(Value::Current(frame.message()?)),
        12 => Input::PodDevices(Update::Upsert(uid, frame.message()?)),
        _ => {
            let (old, new) = halves(frame.content);
            fuzzing::status_patch(old, new);
            return None;
        }
    })
}
