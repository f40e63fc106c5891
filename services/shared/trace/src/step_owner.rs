//! Who has to be asked why a step of a pod's start took its time.

/// Who a step's time belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepOwner {
    /// This node agent.
    Polylet,
    /// The container runtime, with CNI and what it mounts.
    Runtime,
    /// The API server.
    Api,
    /// The registry of an image, and the runtime that unpacks it.
    Registry,
    /// The drivers of volumes.
    Storage,
    /// The containers of the pod: runs to completion, hooks, and how soon they answer probes.
    Workload,
}

/// Container runtimes, under the names that they give themselves in traces.
const RUNTIMES: [&str; 3] = ["containerd", "crio", "cri-o"];

impl StepOwner {
    /// By the service that recorded the span, and its name.
    pub fn of(service: &str, name: &str) -> StepOwner {
        match name {
            _ if RUNTIMES.contains(&service) => StepOwner::Runtime,
            "cri.PullImage" => StepOwner::Registry,
            "status.patch" | "status.delete" => StepOwner::Api,
            "container.run" | "sync.post_start" | "sync.pre_stop" => StepOwner::Workload,
            name if name.starts_with("cri.") => StepOwner::Runtime,
            name if name.starts_with("api.") => StepOwner::Api,
            name if name.starts_with("csi.") => StepOwner::Storage,
            name if name.starts_with("probe.") && name != "probe.outcome" => StepOwner::Workload,
            _ => StepOwner::Polylet,
        }
    }

    /// The word for it.
    pub fn label(self) -> &'static str {
        match self {
            StepOwner::Polylet => "polylet",
            StepOwner::Runtime => "runtime",
            StepOwner::Api => "api",
            StepOwner::Registry => "registry",
            StepOwner::Storage => "storage",
            StepOwner::Workload => "workload",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_owners() {
        for (name, owner) in [
            ("cri.PullImage", "registry"),
            ("cri.RunPodSandbox", "runtime"),
            ("status.patch", "api"),
            ("api.post", "api"),
            ("csi.NodePublishVolume", "storage"),
            ("status.join", "polylet"),
            ("sync.post_start", "workload"),
            ("container.run", "workload"),
            ("sync.sandbox", "polylet"),
            ("probe.http", "workload"),
            ("probe.outcome", "polylet"),
        ] {
            assert_eq!(StepOwner::of("containerd", name).label(), "runtime");
            assert_eq!(StepOwner::of("pleg", name).label(), owner, "{name}");
        }
    }
}
