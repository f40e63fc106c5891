//! A link to the packaged drop-in, so that upgrades of the package reach it.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where systemd looks for it. After kubeadm's own, `10-kubeadm.conf`.
const LINK: &str = "/etc/systemd/system/kubelet.service.d/90-polylet.conf";

/// Where the package has it.
const PACKAGED: &str = "/usr/lib/polylet/kubelet.service.conf";

/// Why the drop-in was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DropInError {
    #[error("{PACKAGED} of the package is missing")]
    NotInstalled,
    #[error("creating {path}")]
    Create {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("removing {LINK}")]
    Remove(#[source] std::io::Error),
}

/// Whether the kubelet's unit runs Polylet from its next start on.
pub(super) fn exists() -> bool {
    Path::new(LINK).is_symlink()
}

/// Links it.
pub(super) fn add() -> Result<(), DropInError> {
    if !Path::new(PACKAGED).is_file() {
        return Err(DropInError::NotInstalled);
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| DropInError::Create { path, source }
    };
    let link = Path::new(LINK);
    if let Some(directory) = link.parent() {
        std::fs::create_dir_all(directory).map_err(failed(directory))?;
    }
    symlink(PACKAGED, link).map_err(failed(link))
}

/// Removes the link.
pub(super) fn remove() -> Result<(), DropInError> {
    match std::fs::remove_file(LINK) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(DropInError::Remove),
    }
}
