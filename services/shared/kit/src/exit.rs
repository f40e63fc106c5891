use std::process::ExitCode;

/// Exit codes of our processes, as in sysexits.h; systemd prints their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Stopped on request.
    Ok = 0,
    /// The requested object does not exist; a regular outcome, not a failure.
    NotFound = 1,
    /// A comparison came to a result that was declared a failure.
    FailedOn = 2,
    /// Invalid arguments.
    Usage = 64,
    /// Invalid input data.
    Data = 65,
    /// The node or a peer is unavailable.
    Unavailable = 69,
    /// An internal failure; see the last lines of the log.
    Failed = 70,
    /// Another process holds the lock; a later attempt may succeed.
    Locked = 75,
    /// Invalid configuration; a restart does not help.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
