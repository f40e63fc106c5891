use std::fs;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use super::{Node, config};
use crate::error::{HarnessError, file};
use crate::{cgroup, cleanup, procs};

impl Node {
    /// The machine loses its power and boots again, up to the runtime: no process of the node, of the
    /// runtime or of a container is left, no cgroup, no mount, nothing that was in memory. What is on
    /// disk stays. [`Node::up`] starts the services again.
    ///
    /// # Errors
    /// When something cannot be taken away, or the runtime does not come up again.
    pub async fn lose_power(&mut self) -> Result<(), HarnessError> {
        self.kill("supervisor").await?;
        self.containerd.down(true);
        let dir = self.scratch().to_owned();
        // Services die with their supervisor; shims and kubelets do not.
        procs::kill(&procs::of_run(&dir));
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
        // On a node these two are below /run.
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
