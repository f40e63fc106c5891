//! The files of a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::builtin::Medium;
use super::bytes::Bytes;

/// All files of a volume, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFiles {
    /// Where they are stored.
    pub medium: Medium,
    /// The group that owns them. Their modes allow for it already.
    pub gid: Option<u32>,
    /// The files by relative path.
    pub content: Arc<BTreeMap<String, VolumeFile>>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// The content.
    pub bytes: Bytes,
    /// The mode, set exactly.
    pub mode: u32,
    /// The owner, if not root.
    pub uid: Option<u32>,
}

/// A file mode, as far as the API allows it.
pub(super) fn mode(mode: i32) -> Result<u32, String> {
    let valid = u32::try_from(mode).ok().filter(|mode| *mode <= 0o777);
    valid.ok_or_else(|| format!("mode {mode} is not between 0 and 0777"))
}

/// The `defaultMode` of a volume source: 0644 if it has none.
pub(super) fn default_mode(mode: Option<i32>) -> Result<u32, String> {
    self::mode(mode.unwrap_or(0o644))
}
