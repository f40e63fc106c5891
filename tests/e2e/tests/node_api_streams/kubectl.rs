//! The real kubectl, with input, and in the background.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use polylet_e2e::ok;
use polylet_harness::{Cluster, wait};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What kubectl speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    WebSocket,
    Spdy,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "spdy",
        }
    }
}

/// kubectl as cluster admin.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    scratch: PathBuf,
    protocol: Protocol,
}

impl Kubectl {
    pub(crate) fn new(cluster: &Cluster, protocol: Protocol) -> Self {
        Self {
            program: ok(cluster.programs().path("kubectl")).to_owned(),
            kubeconfig: cluster.admin(),
            cache: cluster.scratch().join("kubectl"),
            scratch: cluster.scratch().to_owned(),
            protocol,
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A directory for files, which is removed with the cluster.
    pub(crate) fn scratch(&self) -> &PathBuf {
        &self.scratch
    }

    /// The program's path, for a shell.
    pub(crate) fn path(&self) -> String {
        self.program.display().to_string()
    }

    /// A command in its environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let websockets = (self.protocol == Protocol::WebSocket).to_string();
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &websockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &websockets)
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl with this input.
    ///
    /// # Panics
    /// When it cannot be run, or does not end in time.
    pub(crate) async fn run(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(&self.path());
        command.args(words);
        run(command, &words.join(" "), input).await
    }

    /// The same for a command that succeeds; its standard output.
    pub(crate) async fn output(&self, words: &[&str], input: &[u8]) -> String {
        let output = self.run(words, input).await;
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "kubectl {}: {out}{err}",
            words.join(" ")
        );
        out
    }

    /// Starts kubectl, which is killed when the value is dropped.
    pub(crate) fn start(&self, words: &[&str]) -> Background {
        let mut command = self.command(&self.path());
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = ok(command.spawn());
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Background {
            name: words.join(" "),
            child,
            stdin: stdin.expect("piped"),
            stdout: BufReader::new(stdout.expect("piped")),
        }
    }
}

/// Runs a command with this input to its end.
pub(crate) async fn run(mut command: Command, name: &str, input: &[u8]) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = ok(command.spawn());
    let mut stdin = child.stdin.take().expect("piped");
    let work = async {
        // A command that ends early does not read all of it.
        let write = async {
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        ok(output)
    };
    let output = tokio::time::timeout(wait::timeout(), work).await;
    output.unwrap_or_else(|_| panic!("{name} does not end"))
}

/// A kubectl that runs.
pub(crate) struct Background {
    name: String,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Background {
    /// The next line of its output.
    ///
    /// # Panics
    /// When there is none in time.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        let read = tokio::time::timeout(wait::timeout(), read).await;
        let count = ok(read.unwrap_or_else(|_| panic!("{}: no line", self.name)));
        assert!(count > 0, "{} has ended", self.name);
        line.trim_end().to_owned()
    }

    pub(crate) async fn write(&mut self, text: &str) {
        ok(self.stdin.write_all(text.as_bytes()).await);
        ok(self.stdin.flush().await);
    }

    /// Ends its input, and returns the rest of its output and whether it succeeded.
    pub(crate) async fn end(self) -> (String, bool) {
        let Self {
            name,
            mut child,
            stdin,
            mut stdout,
        } = self;
        drop(stdin);
        let work = async {
            let mut rest = String::new();
            ok(stdout.read_to_string(&mut rest).await);
            (rest, ok(child.wait().await).success())
        };
        let ended = tokio::time::timeout(wait::timeout(), work).await;
        ended.unwrap_or_else(|_| panic!("{name} does not end"))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
