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
    /// The containers of the pod: runs to completion, hooks, and how soon they answer probes.
    Workload,
}

impl StepOwner {
    /// By the name of the span.
    pub fn of(name: &str) -> StepOwner {
        match name {
            "cri.PullImage" => StepOwner::Registry,
            "status.patch" => StepOwner::Api,
            "container.run" | "sync.post_start" | "sync.pre_stop" => StepOwner::Workload,
            name if name.starts_with("cri.") => StepOwner::Runtime,
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
            ("status.join", "polylet"),
            ("sync.post_start", "workload"),
            ("container.run", "workload"),
            ("sync.sandbox", "polylet"),
            ("probe.http", "workload"),
            ("probe.outcome", "polylet"),
        ] {
            assert_eq!(StepOwner::of(name).label(), owner, "{name}");
        }
    }
}
