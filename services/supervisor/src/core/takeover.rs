//! The steps by which one node agent replaces the other.

use std::fmt;

/// The unit of a kubelet.
pub const KUBELET: &str = "kubelet.service";
/// Polylet with each service as a unit.
pub const POLYLET_UNITS: &str = "polylet.target";
/// Polylet with the services as children of one process.
pub const POLYLET_PROCESS: &str = "polylet.service";

/// What systemd knows of a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// There is a unit file.
    pub exists: bool,
    /// It is running or starting.
    pub is_active: bool,
    /// It starts at boot.
    pub is_enabled: bool,
    /// Its main process, if there is one.
    pub pid: Option<u32>,
}

/// The node agents of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAgents {
    /// The unit [`KUBELET`].
    pub kubelet: UnitFacts,
    /// The target [`POLYLET_UNITS`].
    pub units: UnitFacts,
    /// The unit [`POLYLET_PROCESS`].
    pub process: UnitFacts,
    /// A drop-in makes [`KUBELET`] run Polylet.
    pub has_drop_in: bool,
    /// kubeadm has written the kubelet's configuration: `init` or `join` has begun.
    pub has_kubeadm_config: bool,
}

/// What is to be the node agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeAgent {
    /// The kubelet.
    Kubelet,
    /// Polylet, by [`POLYLET_UNITS`].
    Units,
    /// Polylet, by [`POLYLET_PROCESS`].
    Process,
    /// Polylet, by [`KUBELET`] with a drop-in: where kubeadm expects the kubelet, with the arguments that it
    /// writes.
    Kubeadm,
}

impl NodeAgent {
    /// The unit that runs it.
    pub fn unit(self) -> &'static str {
        match self {
            NodeAgent::Kubelet | NodeAgent::Kubeadm => KUBELET,
            NodeAgent::Units => POLYLET_UNITS,
            NodeAgent::Process => POLYLET_PROCESS,
        }
    }
}

impl fmt::Display for NodeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeAgent::Kubeadm => write!(f, "{KUBELET} with Polylet"),
            _ => f.write_str(self.unit()),
        }
    }
}

impl NodeAgents {
    fn all(&self) -> [(&'static str, UnitFacts); 3] {
        [
            (KUBELET, self.kubelet),
            (POLYLET_UNITS, self.units),
            (POLYLET_PROCESS, self.process),
        ]
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverStep {
    /// Writes the kubelet's configuration to Polylet's file.
    WriteConfiguration,
    /// Stops a unit.
    Stop(&'static str),
    /// Keeps a unit from starting at boot.
    Disable(&'static str),
    /// Lets a unit start at boot.
    Enable(&'static str),
    /// Starts a unit.
    Start(&'static str),
    /// Makes [`KUBELET`] run Polylet from its next start on.
    AddDropIn,
    /// Makes it run the kubelet again.
    RemoveDropIn,
    /// Restarts a unit, which runs another program from then on.
    Restart(&'static str),
}

impl fmt::Display for TakeoverStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeoverStep::WriteConfiguration => f.write_str(
                "write the configuration of the running kubelet, files and flags merged",
            ),
            TakeoverStep::Stop(unit) => write!(f, "stop {unit}; its containers keep running"),
            TakeoverStep::Disable(unit) => {
                write!(f, "disable {unit}, so that it does not start at boot")
            }
            TakeoverStep::Enable(unit) => write!(f, "enable {unit}, so that it starts at boot"),
            TakeoverStep::Start(unit) => {
                write!(f, "start {unit}, which takes over the running containers")
            }
            TakeoverStep::AddDropIn => {
                write!(
                    f,
                    "let {KUBELET} run Polylet, by a drop-in; kubeadm's files and its arguments stay"
                )
            }
            TakeoverStep::RemoveDropIn => {
                write!(
                    f,
                    "let {KUBELET} run the kubelet, by removing Polylet's drop-in"
                )
            }
            TakeoverStep::Restart(unit) => {
                write!(f, "restart {unit}; its containers keep running")
            }
        }
    }
}

/// The steps that make `agent` the node's only agent, none if it is. The other ones are stopped before it
/// starts.
///
/// # Errors
/// With the name of the unit when `agent` is not installed.
pub fn plan(
    agents: &NodeAgents,
    agent: NodeAgent,
    write_configuration: bool,
) -> Result<Vec<TakeoverStep>, &'static str> {
    let (all, chosen_unit) = (agents.all(), agent.unit());
    let chosen = all.into_iter().find(|(unit, _)| *unit == chosen_unit);
    let chosen = chosen.map(|(_, facts)| facts).unwrap_or_default();
    if !chosen.exists {
        return Err(chosen_unit);
    }
    let mut steps = Vec::new();
    for (unit, facts) in all.into_iter().filter(|(unit, _)| *unit != chosen_unit) {
        if facts.is_active {
            steps.push(TakeoverStep::Stop(unit));
        }
        if facts.is_enabled {
            steps.push(TakeoverStep::Disable(unit));
        }
    }
    let needs_drop_in = agent == NodeAgent::Kubeadm;
    let changes_program = match (agents.has_drop_in, needs_drop_in) {
        (false, true) => Some(TakeoverStep::AddDropIn),
        (true, false) => Some(TakeoverStep::RemoveDropIn),
        _ => None,
    };
    steps.extend(changes_program);
    if !chosen.is_enabled {
        steps.push(TakeoverStep::Enable(chosen_unit));
    }
    if needs_drop_in && !agents.has_kubeadm_config {
        // kubeadm starts the unit when it has written what that needs.
    } else if !chosen.is_active {
        steps.push(TakeoverStep::Start(chosen_unit));
    } else if chosen_unit == KUBELET && changes_program.is_some() {
        steps.push(TakeoverStep::Restart(chosen_unit));
    }
    if write_configuration && !steps.is_empty() {
        steps.insert(0, TakeoverStep::WriteConfiguration);
    }
    Ok(steps)
}

/// Whether a unit takes a kubelet's arguments from the variables that kubeadm's drop-in sets, so that
/// another program can be run with them. `exec_start` is the unit's property `ExecStart`.
pub fn has_kubeadm_arguments(exec_start: &str) -> bool {
    ["$KUBELET_KUBECONFIG_ARGS", "$KUBELET_CONFIG_ARGS"]
        .iter()
        .all(|variable| exec_start.contains(variable))
}

/// The arguments of a kubelet out of the command line of its process (`/proc/<pid>/cmdline`); `None` if it
/// is of another program.
pub fn kubelet_arguments(command_line: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.trim_end_matches('\0').split('\0');
    // It may be started by another program, such as a shell.
    words.find(|word| word.rsplit('/').next() == Some("kubelet"))?;
    Some(words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: UnitFacts = UnitFacts {
        exists: true,
        is_active: true,
        is_enabled: true,
        pid: Some(7),
    };
    const INSTALLED: UnitFacts = UnitFacts {
        exists: true,
        is_active: false,
        is_enabled: false,
        pid: None,
    };

    #[test]
    fn the_kubelet_ends_before_polylet_starts() {
        let agents = NodeAgents {
            kubelet: RUNNING,
            units: INSTALLED,
            process: INSTALLED,
            has_drop_in: false,
            has_kubeadm_config: true,
        };
        let steps = plan(&agents, NodeAgent::Units, true).unwrap();
        let expected = [
            TakeoverStep::WriteConfiguration,
            TakeoverStep::Stop(KUBELET),
            TakeoverStep::Disable(KUBELET),
            TakeoverStep::Enable(POLYLET_UNITS),
            TakeoverStep::Start(POLYLET_UNITS),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn steps_that_are_done_are_left_out() {
        let mut agents = NodeAgents {
            kubelet: INSTALLED,
            units: RUNNING,
            process: INSTALLED,
            has_drop_in: false,
            has_kubeadm_config: true,
        };
        assert_eq!(plan(&agents, NodeAgent::Units, true).unwrap(), []);
        agents.units.is_active = false;
        let steps = plan(&agents, NodeAgent::Units, false).unwrap();
        assert_eq!(steps, [TakeoverStep::Start(POLYLET_UNITS)]);
    }

    #[test]
    fn back_stops_whichever_choice_runs() {
        let agents = NodeAgents {
            kubelet: INSTALLED,
            units: UnitFacts {
                is_active: false,
                ..RUNNING
            },
            process: RUNNING,
            has_drop_in: false,
            has_kubeadm_config: true,
        };
        let steps = plan(&agents, NodeAgent::Kubelet, false).unwrap();
        let expected = [
            TakeoverStep::Disable(POLYLET_UNITS),
            TakeoverStep::Stop(POLYLET_PROCESS),
            TakeoverStep::Disable(POLYLET_PROCESS),
            TakeoverStep::Enable(KUBELET),
            TakeoverStep::Start(KUBELET),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn the_kubelet_s_unit_changes_its_program() {
        let mut agents = NodeAgents {
            kubelet: RUNNING,
            units: INSTALLED,
            process: INSTALLED,
            has_drop_in: false,
            has_kubeadm_config: true,
        };
        let restart = TakeoverStep::Restart(KUBELET);
        let steps = plan(&agents, NodeAgent::Kubeadm, false).unwrap();
        assert_eq!(steps, [TakeoverStep::AddDropIn, restart]);
        agents.has_drop_in = true;
        assert_eq!(plan(&agents, NodeAgent::Kubeadm, false).unwrap(), []);
        let steps = plan(&agents, NodeAgent::Kubelet, false).unwrap();
        assert_eq!(steps, [TakeoverStep::RemoveDropIn, restart]);
        let steps = plan(&agents, NodeAgent::Units, false).unwrap();
        let expected = [
            TakeoverStep::Stop(KUBELET),
            TakeoverStep::Disable(KUBELET),
            TakeoverStep::RemoveDropIn,
            TakeoverStep::Enable(POLYLET_UNITS),
            TakeoverStep::Start(POLYLET_UNITS),
        ];
        assert_eq!(steps, expected);
        // Before `kubeadm init`, where the kubelet waits for its configuration by exiting.
        for kubelet in [INSTALLED, RUNNING] {
            agents = NodeAgents {
                kubelet,
                ..NodeAgents::default()
            };
            let steps = plan(&agents, NodeAgent::Kubeadm, false).unwrap();
            let enable = TakeoverStep::Enable(KUBELET);
            let enable = Some(enable).filter(|_| !kubelet.is_enabled);
            let expected: Vec<_> = [TakeoverStep::AddDropIn]
                .into_iter()
                .chain(enable)
                .collect();
            assert_eq!(steps, expected);
        }
    }

    #[test]
    fn units_with_arguments_of_kubeadm() {
        let with = "{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS \
                    $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS ; ignore_errors=no }";
        assert!(has_kubeadm_arguments(with));
        assert!(!has_kubeadm_arguments(
            "argv[]=/usr/bin/kubelet --config=/a"
        ));
    }

    #[test]
    fn an_agent_that_is_not_installed_is_refused() {
        let agents = NodeAgents {
            units: RUNNING,
            ..NodeAgents::default()
        };
        assert_eq!(plan(&agents, NodeAgent::Kubelet, false), Err(KUBELET));
    }

    #[test]
    fn arguments_of_a_command_line() {
        for (line, expected) in [
            (
                &b"/usr/bin/kubelet\0--config=/a\0--v=2\0"[..],
                Some(vec!["--config=/a", "--v=2"]),
            ),
            (b"/bin/sh\0-c\0x\0kubelet\0--v\0", Some(vec!["--v"])),
            (b"/usr/bin/kubelet\0", Some(vec![])),
            (b"/usr/bin/containerd\0", None),
            (b"", None),
        ] {
            let expected = expected.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(kubelet_arguments(line), expected);
        }
    }
}
