#!/bin/sh
# Configures the image in the directory $1; called by mmdebstrap after the packages' installation.
set -eu
root=$1
cp --recursive --preserve=mode "$(dirname "$0")/rootfs/." "$root/"

# Constant, so that the machine is the same after every boot.
echo 7d3f0c1e52b84a6f9e0d1c2b3a495867 > "$root/etc/machine-id"
echo vm > "$root/etc/hostname"
rm -f "$root/etc/resolv.conf"
echo 'nameserver 10.0.2.3' > "$root/etc/resolv.conf"

chroot "$root" systemctl --quiet enable polylet-vm-agent.service systemd-networkd.service
# Not needed, and slow to start on an emulated processor. Tests of NFS start the server.
chroot "$root" systemctl --quiet disable nfs-server.service rpcbind.service rpcbind.socket \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
	e2scrub_reap.service getty@tty1.service
# Of NFS version 3 and Kerberos; consoles; waits that nothing here waits for.
chroot "$root" systemctl --quiet mask nfs-blkmap.service rpc-statd-notify.service \
	auth-rpcgss-module.service rpc-gssd.service systemd-networkd-wait-online.service \
	serial-getty@ttyS0.service getty-static.service
# Would run at each boot after a power cut: what they write is lost with it.
chroot "$root" systemctl --quiet mask ldconfig.service systemd-hwdb-update.service \
	systemd-journal-catalog-update.service systemd-update-done.service systemd-firstboot.service \
	systemd-sysusers.service systemd-random-seed.service systemd-journal-flush.service \
	systemd-update-utmp.service systemd-update-utmp-runlevel.service
# Modules and file systems that are loaded when they are used.
chroot "$root" systemctl --quiet mask modprobe@drm.service modprobe@efi_pstore.service \
	modprobe@dm_mod.service systemd-pstore.service proc-sys-fs-binfmt_misc.automount \
	sys-kernel-debug.mount sys-kernel-tracing.mount

chroot "$root" update-initramfs -u -k all
