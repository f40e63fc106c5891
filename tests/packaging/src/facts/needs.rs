//! Needs that several services have, or that have several parts.

use super::RequiredAccess;

pub(super) const RUNTIME_SOCKET: RequiredAccess = RequiredAccess {
    reason: "The runtime's socket belongs to root's group and is made anew at each start of the runtime, so that\n\
             access by another group would be lost. Who may use it controls all containers anyway.",
    directives: &[("SupplementaryGroups", "root")],
};

/// What a service that may read files of root has no need to see.
pub(super) const PASSWORDS_HIDDEN: (&str, &str) =
    ("InaccessiblePaths", "-/etc/shadow -/etc/gshadow -/etc/ssh");

pub(super) const NETWORK: (&str, &str) = ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_NETLINK");

pub(super) const NETWORK_SET: [(&str, &str); 3] =
    [NETWORK, ("PrivateNetwork", "no"), ("IPAddressDeny", "")];

pub(super) const PODS_HIDDEN: RequiredAccess = RequiredAccess {
    reason: "Volumes of pods hold their secrets, and hang when their servers are gone.",
    directives: &[(
        "InaccessiblePaths",
        "-/var/lib/kubelet/pods -/var/lib/kubelet/plugins",
    )],
};

pub(super) const KUBELET_HIDDEN: RequiredAccess = RequiredAccess {
    reason: "Nothing of the node's volumes and certificates is needed.",
    directives: &[("InaccessiblePaths", "-/var/lib/kubelet -/etc/kubernetes")],
};

pub(super) const API_SERVER: RequiredAccess = RequiredAccess {
    reason: "Calls the API server, by address or name.",
    directives: &NETWORK_SET,
};

pub(super) const READ_CREDENTIALS: RequiredAccess = RequiredAccess {
    reason: "The kubeconfig, keys and manifests are readable by root alone, as kubeadm and the kubelet write them.",
    directives: &[
        ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"),
        ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
        PASSWORDS_HIDDEN,
    ],
};

pub(super) const WRITE_CERTIFICATES: RequiredAccess = RequiredAccess {
    reason: "Writes certificates beside those of a kubelet. The directory is handed over here, and not when the\n\
             package is installed beside one.",
    directives: &[
        ("SupplementaryGroups", "polylet-pki"),
        (
            "ExecStartPre",
            "+/usr/bin/install -d -m 0775 -g polylet-pki /var/lib/kubelet/pki",
        ),
        ("ReadWritePaths", "-/var/lib/kubelet/pki"),
    ],
};

pub(super) const DEVICE_PLUGINS: [RequiredAccess; 4] = [
    RequiredAccess {
        reason: "Plugins and the socket at which they register belong to root, as with a kubelet: a plugin without\n\
                 capabilities reaches no socket of another user. Plugins of any user are called.",
        directives: &[
            ("CapabilityBoundingSet", "CAP_DAC_OVERRIDE"),
            PASSWORDS_HIDDEN,
        ],
    },
    RequiredAccess {
        reason: "Serves plugins and writes its checkpoint in the directory that a kubelet uses. It exists before it is\n\
                 made writable, with the mode that a kubelet gives it; one that exists is left as it is.",
        directives: &[
            (
                "ExecStartPre",
                "+/usr/bin/mkdir -p -m 0750 /var/lib/kubelet /var/lib/kubelet/device-plugins",
            ),
            ("ReadWritePaths", "-/var/lib/kubelet/device-plugins"),
        ],
    },
    RequiredAccess {
        reason: "The socket at which plugins register is held while it restarts: plugins that watch it see no change.",
        directives: &[("FileDescriptorStoreMax", "1")],
    },
    RequiredAccess {
        reason: "Volumes of pods hang when their servers are gone, and nothing of them or of the node's credentials is\n\
                 needed.",
        directives: &[(
            "InaccessiblePaths",
            "-/var/lib/kubelet/pods -/var/lib/kubelet/plugins -/var/lib/kubelet/pki -/etc/kubernetes",
        )],
    },
];
