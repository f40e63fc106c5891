use std::process::ExitCode;

/// How a process of ours ends. The numbers are those of sysexits.h, which systemd prints by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Stopped because it was asked to.
    Ok = 0,
    /// What was asked for is not there; an answer, not a fault.
    NotFound = 1,
    /// The arguments make no sense.
    Usage = 64,
    /// The node, or a peer, is not there.
    Unavailable = 69,
    /// Something inside failed; the last lines of the log say what.
    Failed = 70,
    /// Another process holds the lock; trying again later may help.
    Locked = 75,
    /// The configuration is wrong; starting again will not help.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
