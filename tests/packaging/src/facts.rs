//! What each service needs from the system, and why. All else is denied by [`crate::profile`].

mod needs;

use Account::{Own, Root};
use FileSystemView::{Host, Private, Strict};
use needs::{
    API_SERVER, DEVICE_PLUGINS, KUBELET_HIDDEN, NETWORK, NETWORK_SET, PASSWORDS_HIDDEN,
    PODS_HIDDEN, READ_CREDENTIALS, RUNTIME_SOCKET, WRITE_CERTIFICATES,
};

/// The user that a service runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// A user of its own, `polylet-<service>`.
    Own,
    /// Root, with fewer capabilities.
    Root,
}

/// The mount namespace of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemView {
    /// Its own, with a read-only file system. Such a namespace is set up mount by mount, so the volumes
    /// of pods must be hidden in it: one whose server is gone would hold up the start.
    Strict,
    /// Its own, with read-only `/usr` and `/etc`: volumes of pods are visible, and not touched by the setup.
    Private,
    /// That of the host: what it mounts must be visible to pods.
    Host,
}

/// A part of the system that a service needs.
#[derive(Clone, Copy, Debug)]
pub struct RequiredAccess {
    /// Why, in words for the unit file.
    pub reason: &'static str,
    /// Directives in the order in which they are written. One that the profile has too replaces it
    /// there, unless systemd adds up the values of several.
    pub directives: &'static [(&'static str, &'static str)],
}

/// Facts of a service that its descriptor does not have.
#[derive(Clone, Copy, Debug)]
pub struct ServiceNeeds {
    /// The service's short name.
    pub service: &'static str,
    /// The user that it runs as.
    pub account: Account,
    /// Its mount namespace.
    pub view: FileSystemView,
    /// Its share of the processor relative to the other services, each of which has 100 by default.
    pub cpu_weight: u32,
    /// The most tasks: threads, and child processes with theirs.
    pub tasks_max: u32,
    /// Above this much memory its allocations are slowed down and reclaimed. A guard against leaks, well
    /// above what a large node needs.
    pub memory_high: &'static str,
    /// It writes certificates into the directory of certificates.
    pub writes_certificates: bool,
    /// What it needs.
    pub needs: &'static [RequiredAccess],
}

/// The facts of all services, in the order of [`crate::DESCRIPTORS`].
pub const FACTS: [ServiceNeeds; 11] = [
    ServiceNeeds {
        service: "pleg",
        account: Own,
        view: Private,
        cpu_weight: 200,
        tasks_max: 128,
        memory_high: "512M",
        writes_certificates: false,
        needs: &[
            RUNTIME_SOCKET,
            RequiredAccess {
                reason: "Reads termination messages and logs of containers, which belong to any user.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
                    ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
                    PASSWORDS_HIDDEN,
                ],
            },
            RequiredAccess {
                reason: "A termination message may be on a volume from anywhere on the node, but not among credentials.",
                directives: &[
                    ("ProtectHome", "read-only"),
                    ("PrivateTmp", "no"),
                    (
                        "InaccessiblePaths",
                        "-/etc/kubernetes -/var/lib/kubelet/pki",
                    ),
                ],
            },
            RequiredAccess {
                reason: "Waits for the processes of containers, and reads their cgroups.",
                directives: &[("ProtectProc", "default")],
            },
        ],
    },
    ServiceNeeds {
        service: "pod-config",
        account: Own,
        view: Strict,
        cpu_weight: 100,
        tasks_max: 128,
        memory_high: "1G",
        writes_certificates: false,
        needs: &[API_SERVER, READ_CREDENTIALS, PODS_HIDDEN],
    },
    ServiceNeeds {
        service: "device-manager",
        account: Root,
        view: Strict,
        cpu_weight: 100,
        tasks_max: 64,
        memory_high: "512M",
        writes_certificates: false,
        needs: &DEVICE_PLUGINS,
    },
    ServiceNeeds {
        service: "prober",
        account: Own,
        view: Strict,
        cpu_weight: 200,
        tasks_max: 64,
        memory_high: "512M",
        writes_certificates: false,
        needs: &[
            RUNTIME_SOCKET,
            RequiredAccess {
                reason: "Probes containers by HTTP, TCP and gRPC.",
                directives: &NETWORK_SET,
            },
            KUBELET_HIDDEN,
        ],
    },
    ServiceNeeds {
        service: "image-gc",
        account: Own,
        view: Strict,
        cpu_weight: 20,
        tasks_max: 64,
        memory_high: "512M",
        writes_certificates: false,
        needs: &[
            RUNTIME_SOCKET,
            RequiredAccess {
                reason: "Measures the file system of images, below directories that only root may enter.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
                    ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
                    PASSWORDS_HIDDEN,
                ],
            },
            KUBELET_HIDDEN,
        ],
    },
    ServiceNeeds {
        service: "volume-manager",
        account: Root,
        view: Host,
        cpu_weight: 100,
        tasks_max: 512,
        memory_high: "1G",
        writes_certificates: false,
        needs: &[
            RequiredAccess {
                reason: "Mounts volumes, gives them their owners and modes, and formats and attaches disks.",
                directives: &[
                    (
                        "CapabilityBoundingSet",
                        "CAP_SYS_ADMIN CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_MKNOD \
                         CAP_KILL CAP_SETUID CAP_SETGID CAP_SYS_RAWIO CAP_IPC_LOCK CAP_NET_BIND_SERVICE CAP_MAC_ADMIN \
                         CAP_SYS_RESOURCE",
                    ),
                    (
                        "SystemCallFilter",
                        "~@clock @cpu-emulation @debug @module @obsolete @reboot @swap",
                    ),
                    ("RestrictSUIDSGID", "no"),
                    ("DevicePolicy", "auto"),
                ],
            },
            RequiredAccess {
                reason: "Mount programs of network file systems connect to their servers.",
                directives: &[NETWORK, ("IPAddressDeny", "")],
            },
            RequiredAccess {
                reason: "Mount programs may have started a daemon of their file system, which serves the volume.",
                directives: &[("KillMode", "process")],
            },
        ],
    },
    ServiceNeeds {
        service: "eviction",
        account: Root,
        view: Private,
        cpu_weight: 100,
        tasks_max: 256,
        memory_high: "1G",
        writes_certificates: false,
        needs: &[
            RequiredAccess {
                reason: "Measures files of any user, in volumes from anywhere on the node.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
                    ("ProtectHome", "read-only"),
                    ("PrivateTmp", "no"),
                ],
            },
            RequiredAccess {
                reason: "Reads OOM kills in the kernel's log.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_SYSLOG"),
                    ("ProtectKernelLogs", "no"),
                    ("PrivateDevices", "no"),
                    ("DeviceAllow", "/dev/kmsg r"),
                ],
            },
        ],
    },
    ServiceNeeds {
        service: "sync-coordinator",
        account: Root,
        view: Private,
        cpu_weight: 300,
        tasks_max: 512,
        memory_high: "1G",
        writes_certificates: false,
        needs: &[
            RequiredAccess {
                reason: "Makes cgroups of pods, and their slices by calls to systemd.",
                directives: &[("ProtectControlGroups", "no")],
            },
            RequiredAccess {
                reason: "Makes and removes the directories, logs and files of pods, which belong to any user.",
                directives: &[
                    (
                        "CapabilityBoundingSet",
                        "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID",
                    ),
                    ("RestrictSUIDSGID", "no"),
                ],
            },
            RequiredAccess {
                reason: "Calls hooks by HTTP; plugins that it runs fetch credentials of image registries, from root's\n\
                         home directory too.",
                directives: &[
                    NETWORK,
                    ("PrivateNetwork", "no"),
                    ("IPAddressDeny", ""),
                    ("ProtectHome", "read-only"),
                ],
            },
            RequiredAccess {
                reason: "Looks at the devices and host files that are passed to containers.",
                directives: &[("PrivateDevices", "no"), ("PrivateTmp", "no")],
            },
        ],
    },
    ServiceNeeds {
        service: "status-reporter",
        account: Own,
        view: Strict,
        cpu_weight: 100,
        tasks_max: 64,
        memory_high: "1G",
        writes_certificates: true,
        needs: &[
            API_SERVER,
            READ_CREDENTIALS,
            WRITE_CERTIFICATES,
            PODS_HIDDEN,
        ],
    },
    ServiceNeeds {
        service: "node-api",
        account: Own,
        view: Strict,
        cpu_weight: 100,
        tasks_max: 64,
        memory_high: "1G",
        writes_certificates: true,
        needs: &[
            RequiredAccess {
                reason: "Serves HTTPS, and calls the API server for reviews.",
                directives: &NETWORK_SET,
            },
            RequiredAccess {
                reason: "The sockets of its TCP ports are held while it restarts: clients wait, and are not refused.",
                directives: &[("FileDescriptorStoreMax", "4")],
            },
            RequiredAccess {
                reason: "The logs of containers, and the keys of certificates, are readable by root alone.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
                    ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
                    PASSWORDS_HIDDEN,
                ],
            },
            RequiredAccess {
                reason: "Node log queries run journalctl, which may read the journal of the system.",
                directives: &[("SupplementaryGroups", "systemd-journal")],
            },
            WRITE_CERTIFICATES,
            PODS_HIDDEN,
        ],
    },
    ServiceNeeds {
        service: "supervisor",
        account: Root,
        view: Strict,
        cpu_weight: 50,
        tasks_max: 64,
        memory_high: "512M",
        writes_certificates: false,
        needs: &[
            RequiredAccess {
                reason: "Reads the memory usage of processes of other users.",
                directives: &[
                    ("CapabilityBoundingSet", "CAP_SYS_PTRACE"),
                    ("ProtectProc", "default"),
                ],
            },
            RequiredAccess {
                reason: "Installs versions of services' programs, from wherever the operator has them.",
                directives: &[
                    ("ReadWritePaths", "-/usr/lib/polylet"),
                    ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
                    PASSWORDS_HIDDEN,
                    ("ProtectHome", "read-only"),
                    ("PrivateTmp", "no"),
                ],
            },
            RequiredAccess {
                reason: "Forwards spans to a collector, where one is configured.",
                directives: &NETWORK_SET,
            },
            KUBELET_HIDDEN,
        ],
    },
];

/// The facts of a service.
///
/// # Panics
/// For an unknown service: a test compares the table with the descriptors.
pub fn of(service: &str) -> &'static ServiceNeeds {
    let found = FACTS.iter().find(|facts| facts.service == service);
    found.unwrap_or_else(|| panic!("no facts of {service}"))
}
