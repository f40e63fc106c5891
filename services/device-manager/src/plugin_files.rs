//! The files with what the next process has to know of plugins. They are of this boot alone, like the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polylet_kit::state_file::{RetriedFile, StateFile, StateFileError};

use crate::core::plugin_records::PluginRecords;

/// Version of the format of both files.
pub(crate) const VERSION: u32 = 1;
/// The sockets, by resource.
const SOCKETS: &str = "plugins.json";
/// The resources of which devices were listed. Older builds do not write it: they store a socket once its plugin has
/// listed devices.
const LISTED: &str = "listed-plugins.json";

/// The files.
pub(crate) struct PluginFiles {
    sockets: RetriedFile<BTreeMap<String, PathBuf>>,
    listed: RetriedFile<BTreeSet<String>>,
    /// The records at the last call.
    known: PluginRecords,
}

impl PluginFiles {
    /// The files in this directory, and what a former process has stored in them.
    ///
    /// # Errors
    /// A file cannot be read, or a newer build has written it.
    pub(crate) fn restore(directory: &Path) -> Result<(Self, PluginRecords), StateFileError> {
        let sockets = StateFile::new(directory.join(SOCKETS), VERSION).without_sync();
        let listed = StateFile::new(directory.join(LISTED), VERSION).without_sync();
        let restored: Option<BTreeMap<String, PathBuf>> =
            sockets.restore("device plugins have to register again")?;
        let restored = restored.unwrap_or_default();
        let records = PluginRecords {
            listed: match listed.restore("device plugins have to list their devices again")? {
                Some(listed) => listed,
                None => restored.keys().cloned().collect(),
            },
            sockets: restored,
        };
        let files = PluginFiles {
            sockets: RetriedFile::new(sockets),
            listed: RetriedFile::new(listed),
            known: records.clone(),
        };
        Ok((files, records))
    }

    /// Stores the records if they have changed since the last call, or could not be stored then. Blocks.
    pub(crate) fn save_changed(&mut self, records: &PluginRecords) -> Result<(), StateFileError> {
        let known = std::mem::replace(&mut self.known, records.clone());
        let changed = known.sockets != records.sockets;
        let sockets = self.sockets.save_changed(changed, &records.sockets);
        // Also beside a new socket: without the file it would count as one of an older build.
        let changed = known != *records;
        let listed = self.listed.save_changed(changed, &records.listed);
        sockets.and(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "example.com/device";

    fn restore(directory: &Path) -> Result<PluginRecords, StateFileError> {
        PluginFiles::restore(directory).map(|(_, records)| records)
    }

    #[test]
    fn sockets_of_an_older_build_are_of_plugins_that_have_listed_devices() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert!(restore(directory).unwrap().is_empty());
        let sockets = include_str!("../testdata/formats/plugins.v1.json");
        std::fs::write(directory.join(SOCKETS), sockets).unwrap();
        let records = restore(directory).unwrap();
        let path = Path::new("/var/lib/kubelet/device-plugins/example.sock");
        assert_eq!(records.sockets[DEVICE], path);
        assert!(records.listed.contains(DEVICE));
    }

    #[test]
    fn records_are_restored_as_they_were_stored() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (mut files, mut records) = PluginFiles::restore(directory).unwrap();
        records.on_connected(DEVICE, Path::new("a.sock"));
        files.save_changed(&records).unwrap();
        assert_eq!(
            restore(directory).unwrap(),
            records,
            "it has not listed devices"
        );
        records.on_listed(DEVICE);
        records.on_disconnected(DEVICE, Path::new("a.sock"));
        files.save_changed(&records).unwrap();
        assert_eq!(restore(directory).unwrap(), records, "it has stopped");
        std::fs::write(directory.join(LISTED), r#"{"version":2,"data":[]}"#).unwrap();
        assert!(restore(directory).is_err());
    }
}
