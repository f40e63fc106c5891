//! Two builds of each program.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use polylet_e2e::ok;
use polylet_harness::node::{SERVICES, default_bin_dir};
use tempfile::TempDir;

/// The programs that run, and a second build of each.
pub(crate) struct Programs {
    active: TempDir,
    other: TempDir,
}

impl Programs {
    pub(crate) fn copy() -> Self {
        let this = Self {
            active: ok(tempfile::tempdir()),
            other: ok(tempfile::tempdir()),
        };
        let services = SERVICES.iter().map(|service| format!("polylet-{service}"));
        for name in services.chain(["polylet".to_owned()]) {
            let built = default_bin_dir().join(&name);
            let other = this.other.path().join(&name);
            ok(fs::copy(&built, this.active.path().join(&name)));
            ok(fs::copy(&built, &other));
            // The kernel ignores what follows a program.
            let mut file = ok(fs::File::options().append(true).open(&other));
            ok(file.write_all(b"another build"));
        }
        this
    }

    /// The directory of the programs that run.
    pub(crate) fn active(&self) -> &Path {
        self.active.path()
    }

    /// The directory of the second builds.
    pub(crate) fn others(&self) -> &Path {
        self.other.path()
    }

    /// The second build of a service.
    pub(crate) fn other(&self, service: &str) -> PathBuf {
        self.other.path().join(format!("polylet-{service}"))
    }
}
