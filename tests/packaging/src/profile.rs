//! The protections of a unit: those of a service that needs nothing, less what it needs.

use std::collections::BTreeSet;

use crate::facts::{Account, FileSystemView, ServiceNeeds};

/// A directive of a unit file.
type Directive = (&'static str, &'static str);

/// Protections that need no namespace of mounts.
const BASE: &[Directive] = &[
    ("UMask", "0077"),
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("RestrictAddressFamilies", "AF_UNIX"),
    ("IPAddressDeny", "any"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("SystemCallArchitectures", "native"),
    ("ProtectHostname", "yes"),
    ("ProtectClock", "yes"),
    ("DevicePolicy", "closed"),
    ("KeyringMode", "private"),
];

/// Protections that are a namespace of mounts.
const MOUNTS: &[Directive] = &[
    ("PrivateMounts", "yes"),
    ("PrivateTmp", "yes"),
    ("PrivateDevices", "yes"),
    ("ProtectHome", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectControlGroups", "yes"),
];

/// Directives whose values systemd adds up.
const ADDITIVE: &[&str] = &[
    "CapabilityBoundingSet",
    "AmbientCapabilities",
    "RestrictAddressFamilies",
    "SupplementaryGroups",
    "InaccessiblePaths",
    "ReadWritePaths",
    "DeviceAllow",
    "ExecStartPre",
];

/// The directives of a service's protection, with comments.
pub fn lines(facts: &ServiceNeeds) -> Vec<String> {
    let needed: BTreeSet<&str> = facts
        .needs
        .iter()
        .flat_map(|need| need.directives)
        .map(|(name, _)| *name)
        .filter(|name| !ADDITIVE.contains(name))
        .collect();
    let mut lines = Vec::new();
    for (name, value) in profile(facts) {
        if !needed.contains(name) {
            lines.push(format!("{name}={value}"));
        }
    }
    for need in facts.needs {
        lines.push(String::new());
        lines.extend(need.reason.lines().map(|line| format!("# {}", line.trim())));
        // An empty value is that of a unit without the directive.
        let directives = need
            .directives
            .iter()
            .filter(|(_, value)| !value.is_empty());
        lines.extend(directives.map(|(name, value)| format!("{name}={value}")));
    }
    lines
}

/// The protections of a service that needs nothing.
fn profile(facts: &ServiceNeeds) -> Vec<Directive> {
    let mut all = BASE.to_vec();
    if facts.account == Account::Own {
        all.push(("RemoveIPC", "yes"));
    }
    all.push(("SystemCallFilter", "@system-service"));
    if facts.account == Account::Own {
        all.push(("SystemCallFilter", "~@privileged"));
    }
    all.push(("SystemCallErrorNumber", "EPERM"));
    if facts.view == FileSystemView::Host {
        return all;
    }
    all.extend(MOUNTS);
    all.push(match facts.view {
        FileSystemView::Strict => ("ProtectSystem", "strict"),
        FileSystemView::Private | FileSystemView::Host => ("ProtectSystem", "full"),
    });
    // No namespace of users: callers could not be told by their groups.
    all.push(("PrivateNetwork", "yes"));
    all
}
