//! Another program continues in the process of the supervisor (`execve`): its children stay its children, and
//! its sockets and lock stay open. Calls meanwhile wait in the sockets' backlogs.
//!
//! Children are killed by the kernel when the *thread* that started them ends. Another program ends all threads
//! but the one that starts it, so both are done by the main thread.
//!
//! The next program finds the names of the open descriptors in its environment, and the state of the services
//! in one of them. One that does not understand that state keeps the services all the same (`children`). Until
//! it has taken them over, it can return to the program before.

pub(crate) mod check;
pub(crate) mod children;
pub(crate) mod descriptors;
mod replace;
pub(crate) mod signals;

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;

use polylet_kit::report;

use self::descriptors::InheritedDescriptors;
pub(crate) use self::replace::ReplaceError;
pub(crate) use self::replace::{Replacement, memory_file, replace};
pub(crate) use self::signals::set_alarm;
use crate::core::handover::{HandoverState, HandoverStateError};

/// The longest state, in bytes.
const MAX_STATE: u64 = 16 << 20;

/// Why the state of the services is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("the state of the services is missing")]
    Missing,
    #[error("reading the state of the services")]
    Read(#[source] std::io::Error),
    #[error(transparent)]
    Decode(#[from] HandoverStateError),
}

/// What the program before has handed over.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Emptied when this program has taken everything over.
    descriptors: RefCell<Option<InheritedDescriptors>>,
    pub(crate) state: HandoverState,
}

impl Handover {
    /// What the environment names; `None` if this program was started in a process of its own.
    pub(crate) fn from_environment() -> Option<Handover> {
        let value = std::env::var_os(descriptors::VARIABLE)?;
        let descriptors = InheritedDescriptors::parse(&value);
        let state = match read_state(&descriptors) {
            Ok(state) => state,
            Err(error) => {
                let error = report(&error);
                tracing::warn!(
                    error,
                    "state of the services is unknown; keeping their processes"
                );
                HandoverState::new(children::find())
            }
        };
        Some(Handover {
            descriptors: RefCell::new(Some(descriptors)),
            state,
        })
    }

    /// A copy of a descriptor.
    pub(crate) fn get(&self, name: &str) -> Option<OwnedFd> {
        self.descriptors.borrow().as_ref()?.get(name)
    }

    /// Copies of all descriptors whose name has this prefix, by the rest of it.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Vec<(String, OwnedFd)> {
        let descriptors = self.descriptors.borrow();
        descriptors
            .as_ref()
            .map(|descriptors| descriptors.with_prefix(prefix))
            .unwrap_or_default()
    }

    /// The spans of the program before.
    pub(crate) fn spans(&self) -> Option<File> {
        let mut file = File::from(self.get(descriptors::SPANS)?);
        file.rewind().ok()?;
        Some(file)
    }

    /// This program has taken everything over, and does not return any more.
    pub(crate) fn complete(&self) {
        if let Some(descriptors) = self.descriptors.take() {
            descriptors.close();
        }
    }

    /// Returns to the program before, because this one cannot continue. Comes back only if that fails.
    pub(crate) fn give_back(&self, reason: String) {
        let (Some(descriptors), Some(previous)) =
            (self.descriptors.take(), self.state.previous.clone())
        else {
            return;
        };
        tracing::error!(reason, program = %previous.display(), "returning to the program before");
        let mut state = self.state.clone();
        state.previous = None;
        state.refusal = Some(reason);
        let mut inherited = descriptors.all();
        inherited.retain(|(name, _)| name != descriptors::STATE);
        let error = replace(Replacement {
            program: &previous,
            state: &state,
            descriptors: inherited,
            deadline: RETURN_DEADLINE,
        });
        tracing::error!(error = report(&error), "the program before does not start");
    }
}

/// How long the program before may take to be in step again.
const RETURN_DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

fn read_state(descriptors: &InheritedDescriptors) -> Result<HandoverState, StateError> {
    let file = descriptors.get(descriptors::STATE);
    read_file(File::from(file.ok_or(StateError::Missing)?))
}

/// Reads a state from the start of a file.
pub(crate) fn read_file(mut file: File) -> Result<HandoverState, StateError> {
    let mut text = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MAX_STATE).read_to_end(&mut text));
    read.map_err(StateError::Read)?;
    Ok(HandoverState::decode(&text)?)
}
