//! What a supervisor hands over to the program that continues in its process: the state of the services that
//! are its children.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::liveness::{Expiry, SavedLiveness};
use super::restart::RestartBackoff;

/// Version of the format. Fields may be added without another one: they have defaults, and those of newer
/// programs are ignored.
pub const FORMAT: u32 = 1;

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HandoverStateError {
    /// It is no state.
    #[error("decoding the state of the services")]
    Decode(#[from] serde_json::Error),
    /// It is of another format.
    #[error("the state of the services has format {found}; only {FORMAT} is known")]
    Format {
        /// The format.
        found: u32,
    },
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoverState {
    /// The version of the format: [`FORMAT`].
    format: u32,
    /// The program that ran before, to which the process returns when the new one cannot continue.
    #[serde(default)]
    pub previous: Option<PathBuf>,
    /// Why the process has returned to this program.
    #[serde(default)]
    pub refusal: Option<String>,
    /// The services; none where they are no children.
    #[serde(default)]
    pub services: Vec<ServiceHandover>,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceHandover {
    /// Its name.
    pub name: String,
    /// Its process, if one runs or has ended without being noticed yet.
    pub process: Option<ProcessHandover>,
    /// Its earlier processes that have drained and are still there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predecessors: Vec<PredecessorHandover>,
    /// When it is to be restarted, in milliseconds from the handover.
    pub restart_in_ms: Option<u64>,
    /// Its restarts.
    pub restarts: RestartBackoff,
    /// How its last process ended.
    pub last_exit: String,
    /// Why it does not run as it should.
    pub failure: Option<FailureHandover>,
    /// The error that its process has reported.
    pub reported_error: String,
}

/// A process that has drained, and is followed by another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PredecessorHandover {
    /// Its id.
    pub pid: u32,
    /// When it is killed unless it has exited, in milliseconds from the handover.
    #[serde(default)]
    pub killed_in_ms: u64,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessHandover {
    /// Its id.
    pub pid: u32,
    /// How long it runs, in milliseconds.
    #[serde(default)]
    pub uptime_ms: u64,
    /// When it was started.
    pub started_at: Timestamp,
    /// Its readiness.
    #[serde(default)]
    pub liveness: SavedLiveness,
    /// Its health check reports that it serves.
    #[serde(default)]
    pub serving: bool,
    /// Why it was killed.
    #[serde(default)]
    pub expiry: Option<Expiry>,
}

/// Why a service does not run as it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureHandover {
    /// Reason of the condition.
    pub reason: String,
    /// How its process ended.
    pub message: String,
    /// The error that the process reported.
    #[serde(default)]
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
}

impl HandoverState {
    /// The state of services that are children.
    pub fn new(services: Vec<ServiceHandover>) -> HandoverState {
        HandoverState {
            format: FORMAT,
            previous: None,
            refusal: None,
            services,
        }
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// It is no state, or one of another format.
    pub fn decode(text: &[u8]) -> Result<HandoverState, HandoverStateError> {
        /// Read first: another format may have another shape.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(text)?;
        if format != FORMAT {
            return Err(HandoverStateError::Format { found: format });
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// The state of a service.
    pub fn service(&self, name: &str) -> Option<&ServiceHandover> {
        self.services.iter().find(|service| service.name == name)
    }
}

impl ProcessHandover {
    /// A process of which nothing is known but its id: it counts as ready, as it has to ping if it is not.
    pub fn unknown(pid: u32, started_at: Timestamp) -> ProcessHandover {
        ProcessHandover {
            pid,
            uptime_ms: 0,
            started_at,
            liveness: SavedLiveness::default(),
            serving: false,
            expiry: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the first release of this format wrote it.
    const FIRST: &str = include_str!("../../testdata/formats/handover.v1.json");

    #[test]
    fn a_state_of_the_first_release_is_read() {
        let state = HandoverState::decode(FIRST.as_bytes()).unwrap();
        assert_eq!(
            state.previous,
            Some("/usr/lib/polylet/supervisor/0.1.0/polylet".into())
        );
        let pleg = state.service("pleg").unwrap();
        let process = pleg.process.as_ref().unwrap();
        assert_eq!(
            (process.pid, process.uptime_ms, process.serving),
            (41, 5000, true)
        );
        assert_eq!(pleg.restarts.total(), 2);
        let prober = state.service("prober").unwrap();
        assert_eq!((prober.restart_in_ms, &prober.process), (Some(400), &None));
        assert_eq!(prober.failure.as_ref().unwrap().reason, "ServiceFailing");
        // What is written is what is read.
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(HandoverState::decode(text.as_bytes()).unwrap(), state);
        let [written, read]: [serde_json::Value; 2] =
            [FIRST, &text].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(written, read);
    }

    #[test]
    fn other_formats_are_refused_and_added_fields_are_ignored() {
        let decode = |text: &str| HandoverState::decode(text.as_bytes());
        let error = |text: &str| decode(text).unwrap_err().to_string();
        assert_eq!(
            error(r#"{"format": 2, "services": 7}"#),
            "the state of the services has format 2; only 1 is known"
        );
        assert_eq!(error("x"), "decoding the state of the services");
        let added = decode(r#"{"format": 1, "more": 1, "services": [{"name": "x", "y": 2}]}"#);
        assert_eq!(added.unwrap().service("x").unwrap().process, None);
    }
}
