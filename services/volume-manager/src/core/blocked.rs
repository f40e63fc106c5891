//! Why a volume cannot be set up yet.

/// Why a volume cannot be set up yet. Messages are upstream's, except those of `Waiting` and
/// `Imminent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// An object has not been received yet.
    Waiting(String),
    /// This node has requested what is missing, and will have it in a moment.
    Imminent(String),
    /// Something is missing and may appear later.
    Missing(String),
    /// The same, with upstream's name of the step that needs it.
    MissingFor(&'static str, String),
    /// The volume is not attached to this node.
    NotAttached(String),
    /// The volume is not attached because its driver can attach no more volumes to this node.
    LimitReached {
        /// The driver.
        driver: String,
        /// The attach error.
        message: String,
    },
    /// It is not known yet which volume is behind the claim.
    Unresolved(String),
    /// The volume cannot be had as specified.
    Failed(String),
    /// The same, with upstream's name of the step that fails.
    FailedIn(&'static str, String),
}

impl Blocked {
    /// A volume of a type that this node does not have; `detail` follows upstream's words.
    pub fn no_plugin(volume: &str, detail: &str) -> Self {
        Self::Unresolved(format!(
            "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched: {detail}"
        ))
    }
}
