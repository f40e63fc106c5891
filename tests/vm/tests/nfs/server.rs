//! The NFS server in the machine.

use polylet_vm::{Guest, VmError};

/// The machine's own address: traffic to it can be dropped like that to any server.
pub(crate) const SERVER: &str = "10.0.2.15";

/// Starts the server.
pub(crate) async fn start(guest: &Guest) -> Result<(), VmError> {
    // The grace period after a restart would otherwise be as long as the whole test.
    guest
        .write(
            "/etc/nfs.conf.d/vm.conf",
            "[nfsd]\nvers3=n\ngrace-time=10\nlease-time=10\n",
        )
        .await?;
    let export = "rw,sync,no_root_squash,no_subtree_check,insecure";
    guest
        .sh(&format!(
            "mkdir -p /srv/share; chmod 777 /srv/share; echo content > /srv/share/file; \
             echo '/srv/share *({export})' > /etc/exports; systemctl start nfs-server"
        ))
        .await?;
    Ok(())
}

/// Drops all packets from and to the server, as a broken network does.
pub(crate) async fn lose(guest: &Guest) -> Result<(), VmError> {
    guest
        .sh("nft 'add table inet lost; \
             add chain inet lost out { type filter hook output priority 0; }; \
             add rule inet lost out tcp dport 2049 drop; \
             add rule inet lost out tcp sport 2049 drop'")
        .await
        .map(drop)
}

/// Lets the packets pass again.
pub(crate) async fn find_again(guest: &Guest) -> Result<(), VmError> {
    guest.sh("nft delete table inet lost").await.map(drop)
}
