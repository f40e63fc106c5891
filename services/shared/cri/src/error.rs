use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// A call to the runtime that failed.
#[derive(Debug, thiserror::Error)]
pub struct CriError {
    /// The call, as the interface names it.
    pub call: &'static str,
    /// The sandbox, container or image it was about; empty for calls about none.
    pub id: String,
    /// What the runtime, or the connection to it, said.
    #[source]
    pub said: RuntimeSaid,
}

/// The answer behind a failed call.
#[derive(Debug, Clone)]
pub struct RuntimeSaid {
    /// The gRPC code.
    pub code: Code,
    /// The runtime's words.
    pub message: String,
    /// The connection broke or never came about: the call may or may not have been carried out.
    pub connection: bool,
}

impl CriError {
    pub(crate) fn new(call: &'static str, id: &str, status: &Status) -> Self {
        Self {
            call,
            id: id.to_owned(),
            said: RuntimeSaid::from_status(status),
        }
    }

    /// The runtime's words alone.
    pub fn message(&self) -> &str {
        &self.said.message
    }

    /// As upstream shows an error of the runtime to people.
    pub fn in_words(&self) -> String {
        let code = match self.code() {
            Code::Cancelled => "Canceled".to_owned(),
            code => format!("{code:?}"),
        };
        format!("rpc error: code = {code} desc = {}", self.message())
    }

    /// The gRPC code of the answer.
    pub fn code(&self) -> Code {
        self.said.code
    }

    /// The thing does not exist, or no longer.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// The runtime is not there; the call may succeed when it is back.
    pub fn is_unavailable(&self) -> bool {
        self.code() == Code::Unavailable || self.said.connection || self.is_starting()
    }

    // containerd answers so, without a code, while it reads its state back after a restart.
    fn is_starting(&self) -> bool {
        self.code() == Code::Unknown && self.message().contains("server is not initialized yet")
    }

    /// The runtime does not know the call, or only declares it.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Code::Unimplemented || self.is_declared_only()
    }

    // CRI-O has answered so, without a code, to calls that it declared before it built them.
    fn is_declared_only(&self) -> bool {
        self.code() == Code::Unknown && self.message().starts_with("not implemented")
    }

    /// The deadline passed.
    pub fn is_deadline(&self) -> bool {
        self.code() == Code::DeadlineExceeded
    }
}

impl fmt::Display for CriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runtime call {}", self.call)?;
        if !self.id.is_empty() {
            write!(f, " of {}", self.id)?;
        }
        Ok(())
    }
}

impl RuntimeSaid {
    fn from_status(status: &Status) -> Self {
        let transport = status
            .source()
            .is_some_and(|s| s.is::<tonic::transport::Error>());
        // The client's own timer reports itself as a cancellation.
        let timer = status.code() == Code::Cancelled && status.message() == "Timeout expired";
        Self {
            code: if timer {
                Code::DeadlineExceeded
            } else {
                status.code()
            },
            message: if timer {
                "no answer in time".to_owned()
            } else if transport {
                innermost(status)
            } else {
                status.message().to_owned()
            },
            connection: transport && !timer,
        }
    }
}

// "transport error" helps nobody: the last cause says "No such file or directory".
fn innermost(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    text
}

impl fmt::Display for RuntimeSaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.connection {
            write!(f, "no connection to the runtime: {}", self.message)
        } else if self.message.is_empty() {
            f.write_str(self.code.description())
        } else {
            f.write_str(&self.message)
        }
    }
}

impl Error for RuntimeSaid {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: &Status) -> CriError {
        CriError::new("StopContainer", "abc", status)
    }

    #[test]
    fn tells_what_a_failure_means() {
        assert!(error(&Status::not_found("gone")).is_not_found());
        assert!(error(&Status::unavailable("down")).is_unavailable());
        assert!(error(&Status::unknown("server is not initialized yet")).is_unavailable());
        assert!(error(&Status::unimplemented("")).is_unimplemented());
        assert!(error(&Status::unknown("not implemented yet")).is_unimplemented());
        let plugin = Status::unknown("NRI sandbox update failed: not implemented");
        assert!(!error(&plugin).is_unimplemented());
        assert!(error(&Status::deadline_exceeded("late")).is_deadline());
        assert!(error(&Status::cancelled("Timeout expired")).is_deadline());
        assert!(!error(&Status::cancelled("by hand")).is_deadline());
    }

    #[test]
    fn the_cause_is_not_repeated() {
        let error = error(&Status::internal("out of cheese"));
        assert_eq!(error.to_string(), "runtime call StopContainer of abc");
        assert_eq!(error.source().unwrap().to_string(), "out of cheese");
    }
}
