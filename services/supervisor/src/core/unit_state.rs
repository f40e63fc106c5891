//! The state of units as `systemctl show` prints it.

/// The properties that are read.
pub const PROPERTIES: &str = "Id,ActiveState,SubState,MainPID,NRestarts,Result,ExecMainCode,ExecMainStatus,ExecMainStartTimestampMonotonic,StatusText";

/// What a unit does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnitPhase {
    /// Its process has not yet reported that it is ready.
    Starting,
    /// Its process is ready.
    Running,
    /// It waits to be restarted.
    BackOff,
    /// It is not running, and systemd does not restart it.
    #[default]
    Stopped,
}

/// The state of one service unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// The name with its suffix, such as `polylet-pleg.service`.
    pub unit: String,
    /// What it does.
    pub phase: UnitPhase,
    /// Its main process, if there is one.
    pub pid: Option<u32>,
    /// How often systemd has restarted it.
    pub restarts: u32,
    /// Microseconds of the monotonic clock at which its process started, if it has.
    pub started_at: Option<u64>,
    /// How its last process ended, empty for success.
    pub failure: String,
    /// Whether systemd killed it for a missed deadline, and which.
    pub expiry: Option<UnitExpiry>,
    /// The line that the process has published.
    pub status: String,
}

/// A deadline that a unit's process has missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitExpiry {
    /// It did not become ready, or did not stop.
    Timeout,
    /// It did not ping.
    Watchdog,
}

/// Parses the blocks of `systemctl show` for several units. Unknown properties are ignored.
pub fn parse(text: &str) -> Vec<UnitState> {
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(parse_block).collect()
}

fn parse_block(block: &str) -> UnitState {
    let property = |name: &str| {
        let mut values = block.lines().filter_map(|line| line.split_once('='));
        let value = values.find(|(known, _)| *known == name);
        value.map(|(_, value)| value).unwrap_or_default()
    };
    let number = |name| {
        property(name)
            .parse::<u64>()
            .ok()
            .filter(|value| *value > 0)
    };
    let result = property("Result");
    let phase = match (property("ActiveState"), property("SubState")) {
        ("active" | "reloading", _) => UnitPhase::Running,
        // Some versions have a restart between two further ones.
        ("activating", sub) if sub.starts_with("auto-restart") => UnitPhase::BackOff,
        ("activating", _) => UnitPhase::Starting,
        _ => UnitPhase::Stopped,
    };
    let expiry = match result {
        "timeout" => Some(UnitExpiry::Timeout),
        "watchdog" => Some(UnitExpiry::Watchdog),
        _ => None,
    };
    UnitState {
        unit: property("Id").to_owned(),
        phase,
        pid: number("MainPID").and_then(|pid| u32::try_from(pid).ok()),
        restarts: number("NRestarts").map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        started_at: number("ExecMainStartTimestampMonotonic"),
        failure: failure(result, property("ExecMainCode"), property("ExecMainStatus")),
        expiry,
        status: property("StatusText").to_owned(),
    }
}

/// Describes how a process ended; `code` is `si_code` of waitid(2).
fn failure(result: &str, code: &str, status: &str) -> String {
    match (result, code) {
        ("" | "success", _) => String::new(),
        ("watchdog", _) => "no watchdog ping".to_owned(),
        ("timeout", _) => "not ready, or not stopped, in time".to_owned(),
        (_, "1") => format!("exit code {status}"),
        (_, "2" | "3") => format!("killed by signal {status}"),
        _ => result.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "\
MainPID=812
NRestarts=0
Result=success
ExecMainStartTimestampMonotonic=5512345
ExecMainCode=0
ExecMainStatus=0
StatusText=12 pods, 3 peers in sync
Id=polylet-pleg.service
ActiveState=active
SubState=running

MainPID=0
NRestarts=4
Result=exit-code
ExecMainStartTimestampMonotonic=5512345
ExecMainCode=1
ExecMainStatus=70
StatusText=building the service: a=b
Id=polylet-prober.service
ActiveState=activating
SubState=auto-restart
";

    #[test]
    fn units_are_parsed() {
        let units = parse(SHOWN);
        assert_eq!(
            units,
            [
                UnitState {
                    unit: "polylet-pleg.service".to_owned(),
                    phase: UnitPhase::Running,
                    pid: Some(812),
                    started_at: Some(5_512_345),
                    status: "12 pods, 3 peers in sync".to_owned(),
                    ..UnitState::default()
                },
                UnitState {
                    unit: "polylet-prober.service".to_owned(),
                    phase: UnitPhase::BackOff,
                    restarts: 4,
                    started_at: Some(5_512_345),
                    failure: "exit code 70".to_owned(),
                    status: "building the service: a=b".to_owned(),
                    ..UnitState::default()
                },
            ]
        );
    }

    #[test]
    fn phases_and_failures() {
        for (active, sub, result, code, phase, failure, expiry) in [
            (
                "activating",
                "start",
                "success",
                "0",
                UnitPhase::Starting,
                "",
                None,
            ),
            (
                "inactive",
                "dead",
                "success",
                "1",
                UnitPhase::Stopped,
                "",
                None,
            ),
            (
                "failed",
                "failed",
                "signal",
                "2",
                UnitPhase::Stopped,
                "killed by signal 9",
                None,
            ),
            (
                "activating",
                "auto-restart-queued",
                "watchdog",
                "2",
                UnitPhase::BackOff,
                "no watchdog ping",
                Some(UnitExpiry::Watchdog),
            ),
            (
                "failed",
                "failed",
                "protocol",
                "0",
                UnitPhase::Stopped,
                "protocol",
                None,
            ),
        ] {
            let text = format!(
                "Id=x\nActiveState={active}\nSubState={sub}\nResult={result}\nExecMainCode={code}\nExecMainStatus=9\n"
            );
            let units = parse(&text);
            let unit = &units[0];
            assert_eq!(
                (unit.phase, unit.failure.as_str(), unit.expiry),
                (phase, failure, expiry)
            );
        }
        assert_eq!(parse(""), []);
        assert_eq!(parse("\n\n\n"), []);
    }
}
