//! NFS exports that pods mount.

/// An NFS export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NfsVolume {
    /// The server's name or address.
    pub server: String,
    /// The exported path.
    pub path: String,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// Mounted read-only.
    pub read_only: bool,
}
