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
    agent: &'static str,
    write_configuration: bool,
) -> Result<Vec<TakeoverStep>, &'static str> {
    let all = agents.all();
    let chosen = all.into_iter().find(|(unit, _)| *unit == agent);
    let chosen = chosen.map(|(_, facts)| facts).unwrap_or_default();
    if !chosen.exists {
        return Err(agent);
    }
    let mut steps = Vec::new();
    for (unit, facts) in all.into_iter().filter(|(unit, _)| *unit != agent) {
        if facts.is_active {
            steps.push(TakeoverStep::Stop(unit));
        }
        if facts.is_enabled {
            steps.push(TakeoverStep::Disable(unit));
        }
    }
    if !chosen.is_enabled {
        steps.push(TakeoverStep::Enable(agent));
    }
    if !chosen.is_active {
        steps.push(TakeoverStep::Start(agent));
    }
    if write_configuration && !steps.is_empty() {
        steps.insert(0, TakeoverStep::WriteConfiguration);
    }
    Ok(steps)
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
        };
        let steps = plan(&agents, POLYLET_UNITS, true).unwrap();
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
        };
        assert_eq!(plan(&agents, POLYLET_UNITS, true).unwrap(), []);
        agents.units.is_active = false;
        let steps = plan(&agents, POLYLET_UNITS, false).unwrap();
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
        };
        let steps = plan(&agents, KUBELET, false).unwrap();
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
    fn an_agent_that_is_not_installed_is_refused() {
        let agents = NodeAgents {
            units: RUNNING,
            ..NodeAgents::default()
        };
        assert_eq!(plan(&agents, KUBELET, false), Err(KUBELET));
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
