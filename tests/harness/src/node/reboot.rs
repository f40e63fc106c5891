use std::fs;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use super::{Node, config};
use crate::error::{HarnessError, file};
use crate::{cgroup, cleanup, procs};

impl Node {
    /// Simulates a power loss and a boot up to the runtime: all processes of the node, runtime and
    /// containers, cgroups, mounts and in-memory files are removed; files on disk remain.
    /// [`Node::up`] starts the services again.
    ///
    /// # Errors
    /// Fails if something cannot be removed or the runtime does not become ready.
    pub async fn lose_power(&mut self) -> Result<(), HarnessError> {
        self.kill("supervisor").await?;
        self.containerd.down(true);
        let dir = self.scratch().to_owned();
        // Services exit with their supervisor; shims and kubelets do not.
        procs::kill(&procs::list(&dir));
        let cgroup = self.cgroup().to_owned();
        cgroup::remove(&cgroup);
        cgroup::create(&cgroup)?;
        cleanup::remove_records(&dir);
        let disk = dir.join("root");
        for at in cleanup::mounts_below(&dir) {
            if at != disk {
                let gone = unmount(&at, UnmountFlags::DETACH).map_err(Into::into);
                file("unmount", &at, gone)?;
            }
        }
        // On a real node both are below /run.
        for volatile in ["state", "runc"] {
            empty(&dir.join(volatile))?;
        }
        config::in_memory(&self.dirs.run)?;
        self.containerd.up().await
    }
}

fn empty(dir: &Path) -> Result<(), HarnessError> {
    if !dir.exists() {
        return Ok(());
    }
    file("remove", dir, fs::remove_dir_all(dir))?;
    file("make", dir, fs::create_dir(dir))
}
