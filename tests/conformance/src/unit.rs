use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StandInStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use polylet_harness::HarnessError;
use polylet_harness::error::file;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The suite finds the node agent's unit by this pattern: `kubelet-` and a word.
const UNIT: &str = "kubelet-conformance.service";

/// Where the stand-in for `systemctl` finds this program.
pub(crate) const SOCKET_VARIABLE: &str = "POLYLET_CONFORMANCE_SOCKET";

/// What specs ask of the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitRequest {
    /// Lists the agent's unit.
    List {
        /// Not when it is stopped.
        only_running: bool,
    },
    /// Starts the agent, after stopping it if it runs.
    Restart,
    /// Stops the agent.
    Stop,
    /// Forgets that the agent was restarted often, of which nothing is remembered here.
    ResetFailed,
}

impl UnitRequest {
    /// Parses the arguments of `systemctl`.
    fn parse(args: &[&str]) -> Option<Self> {
        let (verb, rest) = args.split_first()?;
        match *verb {
            "list-units" => Some(Self::List {
                only_running: rest.contains(&"--state=running"),
            }),
            "restart" | "start" => Some(Self::Restart),
            "stop" | "kill" => Some(Self::Stop),
            "reset-failed" => Some(Self::ResetFailed),
            _ => None,
        }
    }
}

/// A line of `systemctl list-units`.
pub(crate) fn unit_line(is_running: bool) -> String {
    let state = if is_running { "running" } else { "dead" };
    format!("{UNIT} loaded active {state} node agent\n")
}

/// Requests of the stand-in for `systemctl`, which is put first on the suite's PATH.
#[derive(Debug)]
pub(crate) struct UnitServer {
    listener: UnixListener,
    socket: PathBuf,
    programs: PathBuf,
}

impl UnitServer {
    /// Writes the stand-ins for `systemctl` and `sudo` to `dir`, and listens there.
    ///
    /// # Errors
    /// Fails if a file or the socket cannot be made.
    pub(crate) fn listen(dir: &Path) -> Result<Self, HarnessError> {
        let (programs, socket) = (dir.join("programs"), dir.join("unit.sock"));
        file("make", &programs, fs::create_dir_all(&programs))?;
        let own = file("find", "this program", std::env::current_exe())?;
        let systemctl = programs.join("systemctl");
        file(
            "link",
            &systemctl,
            std::os::unix::fs::symlink(own, &systemctl),
        )?;
        let sudo = programs.join("sudo");
        file("write", &sudo, fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n"))?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        file("open", &sudo, fs::set_permissions(&sudo, executable))?;
        let listener = file("listen on", &socket, UnixListener::bind(&socket))?;
        Ok(Self {
            listener,
            socket,
            programs,
        })
    }

    /// The directory of the stand-ins.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// The value of [`SOCKET_VARIABLE`].
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The next request that is understood; others fail at once.
    pub(crate) async fn next(&self) -> (UnitRequest, UnitReply) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                continue;
            };
            let mut text = String::new();
            if stream.read_to_string(&mut text).await.is_err() {
                continue;
            }
            let args: Vec<&str> = text.lines().collect();
            let reply = UnitReply(stream);
            match UnitRequest::parse(&args) {
                Some(request) => return (request, reply),
                None => {
                    let words = args.join(" ");
                    reply.send(Err(format!("unknown request: {words}"))).await;
                }
            }
        }
    }
}

/// Answers one request.
#[derive(Debug)]
pub(crate) struct UnitReply(UnixStream);

impl UnitReply {
    /// Sends the output, or the reason of a failure.
    pub(crate) async fn send(mut self, answer: Result<String, String>) {
        let text = match answer {
            Ok(output) => format!("0\n{output}"),
            Err(reason) => format!("1\n{reason}\n"),
        };
        // A stand-in that is gone needs no answer.
        let _ = self.0.write_all(text.as_bytes()).await;
    }
}

/// Acts as `systemctl` if this program was started by that name, and returns its exit code.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let mut args = std::env::args();
    let name = args.next()?;
    if Path::new(&name).file_name() != Some(OsStr::new("systemctl")) {
        return None;
    }
    let words: Vec<String> = args.collect();
    Some(match ask(&words.join("\n")) {
        Ok((code, output)) => {
            print!("{output}");
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("systemctl: {error}");
            ExitCode::FAILURE
        }
    })
}

fn ask(request: &str) -> io::Result<(u8, String)> {
    let socket = std::env::var_os(SOCKET_VARIABLE).unwrap_or_default();
    let mut stream = StandInStream::connect(socket)?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (code, output) = text.split_once('\n').unwrap_or(("1", ""));
    Ok((code.parse().unwrap_or(1), output.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_suite_are_understood() {
        let parse = |line: &str| UnitRequest::parse(&line.split(' ').collect::<Vec<_>>());
        let list = |only_running| Some(UnitRequest::List { only_running });
        assert_eq!(parse("list-units *kubelet*"), list(false));
        assert_eq!(parse("list-units *kubelet* --state=running"), list(true));
        assert_eq!(parse("restart kubelet-x"), Some(UnitRequest::Restart));
        assert_eq!(parse("kill kubelet-x"), Some(UnitRequest::Stop));
        assert_eq!(
            parse("reset-failed kubelet-x"),
            Some(UnitRequest::ResetFailed)
        );
        assert_eq!(parse("daemon-reload"), None);
    }

    #[test]
    fn the_unit_has_a_name_that_the_suite_finds() {
        let line = unit_line(true);
        let (_, rest) = line.split_once("kubelet-").unwrap();
        assert!(rest.starts_with(char::is_alphanumeric));
    }
}
