//! One person's kubectl: commands in one namespace about one node, and what they print.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node, wait};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::background::BackgroundCommand;
use crate::normalize;
use crate::transcript::Transcript;

/// How the lines of an output are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineOrder {
    /// As they are.
    Kept,
    /// In any order and number: events, and objects with random names.
    Any,
    /// As they are, but the words of each in any order: lists of pods.
    AnyWords,
    /// Those after `Events:` in any order and number.
    AnyEvents,
    /// The last one alone: those before depend on the time.
    LastOnly,
}

/// The names of a pod's containers that run or have ended.
fn started_containers(pod: &Value) -> Vec<String> {
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let all = lists
        .iter()
        .filter_map(|list| pod["status"][list].as_array());
    let started = all.flatten().filter(|status| {
        let state = &status["state"];
        state["running"].is_object() || state["terminated"].is_object()
    });
    let names = started.filter_map(|status| status["name"].as_str());
    names.map(str::to_owned).collect()
}

/// A session with one node.
pub(crate) struct Session<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) agent: &'a Node,
    node: &'a str,
    namespace: &'a str,
    dir: PathBuf,
    started: usize,
    transcript: Transcript,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        agent: &'a Node,
        node: &'a str,
        namespace: &'a str,
    ) -> Self {
        let dir = cluster.scratch().join(namespace);
        ok(fs::create_dir_all(&dir));
        Self {
            cluster,
            agent,
            node,
            namespace,
            dir,
            started: 0,
            transcript: Transcript::default(),
        }
    }

    pub(crate) fn finish(self) -> Transcript {
        self.transcript
    }

    /// The path of a file of this session; commands name it `DIR/<name>`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The node's name; commands name it `NODE`.
    pub(crate) fn node(&self) -> &str {
        self.node
    }

    /// The API path of objects of the session.
    pub(crate) fn path(&self, objects: &str) -> String {
        format!("/api/v1/namespaces/{}/{objects}", self.namespace)
    }

    /// The API path of a pod of the session.
    pub(crate) fn pod_path(&self, name: &str) -> String {
        self.path(&format!("pods/{name}"))
    }

    /// Waits until a pod satisfies a condition. One that never does is noticed by the commands that follow.
    pub(crate) async fn wait_pod(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
        let waited = self.cluster.wait(&self.pod_path(name), what, wanted).await;
        if let Err(error) = waited {
            eprintln!("{}: {}", self.node, polylet_harness::error::report(&error));
        }
    }

    /// The same for a list.
    pub(crate) async fn wait_list(
        &self,
        objects: &str,
        what: &str,
        wanted: impl Fn(usize) -> bool,
    ) {
        let is_wanted = |list: &Value| wanted(list["items"].as_array().map_or(0, Vec::len));
        let waited = self
            .cluster
            .wait(&self.path(objects), what, is_wanted)
            .await;
        if let Err(error) = waited {
            eprintln!("{}: {}", self.node, polylet_harness::error::report(&error));
        }
    }

    /// `kubectl describe pod`, once there is an event of each container that has started: events follow the
    /// status.
    pub(crate) async fn describe_pod(&mut self, name: &str) {
        let object = name.replace("NODE", self.node);
        let pod = ok(self.cluster.client().get(&self.pod_path(&object)).await).unwrap_or_default();
        let started = started_containers(&pod);
        let events = self.path(&format!(
            "events?fieldSelector=involvedObject.name={object},reason=Started"
        ));
        let are_there = |list: &Value| {
            let events = list["items"].as_array();
            let fields = events.into_iter().flatten();
            let fields = fields.filter_map(|event| event["involvedObject"]["fieldPath"].as_str());
            let fields: Vec<&str> = fields.collect();
            let of = |name: &String| {
                let suffix = format!("{{{name}}}");
                fields.iter().any(|field| field.ends_with(&suffix))
            };
            started.iter().all(of)
        };
        let what = "to have the events of all containers";
        if let Err(error) = self.cluster.wait(&events, what, are_there).await {
            eprintln!("{}: {}", self.node, polylet_harness::error::report(&error));
        }
        self.run_in(LineOrder::AnyEvents, &["describe", "pod", name])
            .await;
    }

    /// Runs a command and records its output; returns the standard output as it is.
    pub(crate) async fn run(&mut self, words: &[&str]) -> String {
        self.run_as(words, LineOrder::Kept, b"").await
    }

    /// The same with another order of the lines.
    pub(crate) async fn run_in(&mut self, order: LineOrder, words: &[&str]) -> String {
        self.run_as(words, order, b"").await
    }

    /// The same with input.
    pub(crate) async fn run_as(
        &mut self,
        words: &[&str],
        order: LineOrder,
        input: &[u8],
    ) -> String {
        let mut command = self.command(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = ok(command.spawn());
        let mut stdin = child.stdin.take().expect("piped");
        let work = async {
            let write = async {
                // A command that ends early does not read all of it.
                let _ = stdin.write_all(input).await;
                drop(stdin);
            };
            tokio::join!(write, child.wait_with_output()).1
        };
        let Ok(output) = tokio::time::timeout(wait::timeout(), work).await else {
            self.record(&words.join(" "), order, "does not end");
            return String::new();
        };
        let output = ok(output);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut text = stdout.clone();
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            text.push_str(&format!("stderr: {line}\n"));
        }
        if output.status.code() != Some(0) {
            text.push_str(&format!("{}\n", output.status));
        }
        self.record(&words.join(" "), order, &text);
        stdout
    }

    /// Records a text as the output of a command.
    pub(crate) fn record(&mut self, title: &str, order: LineOrder, text: &str) {
        let dir = self.dir.display().to_string();
        let run = self.agent.scratch().display().to_string();
        let names = [
            (dir.as_str(), "DIR"),
            (run.as_str(), "RUN"),
            (self.node, "NODE"),
            (self.namespace, "NS"),
        ];
        let mut lines = normalize::lines(text, &names);
        let from = match order {
            LineOrder::Kept => lines.len(),
            LineOrder::AnyWords => {
                for line in &mut lines {
                    let mut words: Vec<&str> = line.split([' ', ',', ';', '[', ']']).collect();
                    words.sort_unstable();
                    *line = words.join(" ").trim_start().to_owned();
                }
                0
            }
            LineOrder::Any => 0,
            LineOrder::AnyEvents => {
                let events = lines.iter().position(|line| line.starts_with("Events:"));
                events.unwrap_or(lines.len())
            }
            LineOrder::LastOnly => {
                let last = lines.pop();
                lines = last.into_iter().collect();
                lines.len()
            }
        };
        let mut events = lines.split_off(from);
        events.sort();
        events.dedup();
        lines.extend(events);
        self.transcript.push(title.to_owned(), lines);
    }

    /// Writes an object and applies it.
    pub(crate) async fn apply(&mut self, object: &Value) {
        let name = format!(
            "{}.json",
            object["metadata"]["name"].as_str().unwrap_or("object")
        );
        let text = object.to_string().replace("NODE", self.node);
        ok(fs::write(self.file(&name), text));
        let path = format!("DIR/{name}");
        self.run(&["apply", "-f", &path]).await;
    }

    /// Starts a command that goes on.
    pub(crate) fn start(&mut self, words: &[&str]) -> BackgroundCommand {
        let command = self.command(words);
        let output = self.next_file();
        BackgroundCommand::spawn(command, words.join(" "), output)
    }

    /// Starts a command with a terminal of 40 rows and 100 columns.
    pub(crate) fn start_in_terminal(&mut self, words: &[&str]) -> BackgroundCommand {
        let (output, terminal) = (self.next_file(), self.next_file());
        let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
        let words_of_kubectl = self.words(words);
        let kubectl: Vec<String> = words_of_kubectl.iter().map(quoted).collect();
        let program = ok(self.cluster.programs().path("kubectl")).display();
        let script = format!(
            "stty rows 40 cols 100; tty > {}; exec {program} {}",
            terminal.display(),
            kubectl.join(" ")
        );
        let mut command = self.in_environment("script");
        command.args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &script,
            "/dev/null",
        ]);
        BackgroundCommand::spawn(command, words.join(" "), output).with_terminal(terminal)
    }

    fn next_file(&mut self) -> PathBuf {
        self.started += 1;
        self.file(&format!("output-{}", self.started))
    }

    fn command(&self, words: &[&str]) -> Command {
        let program = ok(self.cluster.programs().path("kubectl")).display();
        let mut command = self.in_environment(&program.to_string());
        command.args(self.words(words));
        command
    }

    /// Arguments without placeholders, in the session's namespace.
    fn words(&self, words: &[&str]) -> Vec<String> {
        let dir = self.dir.display().to_string();
        let replaced = |word: &&str| word.replace("NODE", self.node).replace("DIR", &dir);
        let namespace = format!("--namespace={}", self.namespace);
        let mut all = vec![namespace];
        all.extend(words.iter().map(replaced));
        all
    }

    fn in_environment(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.cluster.admin())
            .env("KUBECACHEDIR", self.cluster.scratch().join("kubectl"))
            .kill_on_drop(true);
        command
    }
}
