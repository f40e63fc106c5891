use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// A failed call to the runtime.
#[derive(Debug, thiserror::Error)]
pub struct CriError {
    /// The method's name in the CRI.
    pub call: &'static str,
    /// The sandbox, container or image; empty if there is none.
    pub id: String,
    /// The error of the runtime or of the connection to it.
    #[source]
    pub source: RuntimeMessage,
}

/// The error of the runtime or of the connection to it.
#[derive(Debug, Clone)]
pub struct RuntimeMessage {
    /// The gRPC code.
    pub code: Code,
    /// The runtime's message.
    pub message: String,
    /// Whether the connection failed: the call may or may not have been executed.
    pub connection: bool,
}

impl CriError {
    pub(crate) fn new(call: &'static str, id: &str, status: &Status) -> Self {
        Self {
            call,
            id: id.to_owned(),
            source: RuntimeMessage::from_status(status),
        }
    }

    /// The runtime's message alone.
    pub fn message(&self) -> &str {
        &self.source.message
    }

    /// The error as Go's gRPC client prints it, and as upstream puts it into events and statuses.
    pub fn rpc_error(&self) -> String {
        let code = match self.code() {
            Code::Cancelled => "Canceled".to_owned(),
            code => format!("{code:?}"),
        };
        format!("rpc error: code = {code} desc = {}", self.message())
    }

    /// The gRPC code.
    pub fn code(&self) -> Code {
        self.source.code
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// Whether the runtime is unavailable: the call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        self.code() == Code::Unavailable || self.source.connection || self.is_starting()
    }

    // Containerd returns this, without a code, while it restores its state after a restart.
    fn is_starting(&self) -> bool {
        self.code() == Code::Unknown && self.message().contains("server is not initialized yet")
    }

    /// Whether the runtime does not implement the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Code::Unimplemented || self.is_unknown_not_implemented()
    }

    // CRI-O returns this, without a code, for calls that it declares and does not implement.
    fn is_unknown_not_implemented(&self) -> bool {
        self.code() == Code::Unknown && self.message().starts_with("not implemented")
    }

    /// Whether the deadline has passed.
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

impl RuntimeMessage {
    fn from_status(status: &Status) -> Self {
        let transport = status
            .source()
            .is_some_and(|s| s.is::<tonic::transport::Error>());
        // Tonic reports its own timeout as a cancellation.
        let is_timeout = status.code() == Code::Cancelled && status.message() == "Timeout expired";
        Self {
            code: if is_timeout {
                Code::DeadlineExceeded
            } else {
                status.code()
            },
            message: if is_timeout {
                "no response in time".to_owned()
            } else if transport {
                root_cause(status)
            } else {
                status.message().to_owned()
            },
            connection: transport && !is_timeout,
        }
    }
}

// The message of a transport error is "transport error"; its last cause is the useful one, such as
// "No such file or directory".
fn root_cause(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    text
}

impl fmt::Display for RuntimeMessage {
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

impl Error for RuntimeMessage {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: &Status) -> CriError {
        CriError::new("StopContainer", "abc", status)
    }

    #[test]
    fn kinds_of_errors() {
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
    fn messages_do_not_repeat_their_cause() {
        let error = error(&Status::internal("out of cheese"));
        assert_eq!(error.to_string(), "runtime call StopContainer of abc");
        assert_eq!(error.source().unwrap().to_string(), "out of cheese");
    }
}
