//! `exec -it`, `attach -it`, `run -it --rm` and `debug -it` with a real terminal.

use serde_json::json;

use crate::background::BackgroundCommand;
use crate::manifests::{ANSWERS, pod};
use crate::session::{LineOrder, Session};

/// Waits for the terminal's first size, without which stty fails, tells the second one, and answers lines.
const SIZES: &str = "while ! stty size 2>/dev/null | grep -q '^40 100$'; do sleep 0.05; done; echo sized; \
    while ! stty size | grep -q '^50 120$'; do sleep 0.05; done; stty size; tty; echo error >&2; \
    while read -r line; do echo \"got $line\"; [ \"$line\" = bye ] && exit 4; done";
const IMAGE: &str = "--image=polylet-test:1";

pub(crate) async fn run(session: &mut Session<'_>) {
    exec(session).await;
    attach(session).await;
    once(session).await;
    debug(session).await;
}

async fn exec(session: &mut Session<'_>) {
    let words = ["exec", "-it", "web", "--", "sh", "-c", SIZES];
    let mut terminal = session.start_in_terminal(&words);
    terminal.wait_for("sized").await;
    terminal.resize(50, 120);
    terminal.wait_for("error").await;
    converse(session, &words, terminal).await;
    // Ctrl-C goes to the command, not to kubectl.
    let words = [
        "exec",
        "-it",
        "web",
        "--",
        "sh",
        "-c",
        "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.1; done",
    ];
    let mut terminal = session.start_in_terminal(&words);
    terminal.wait_for("ready").await;
    terminal.write("\u{3}").await;
    end(session, &words, terminal).await;
}

async fn attach(session: &mut Session<'_>) {
    let tty = json!({
        "restartPolicy": "Never",
        "container": { "stdin": true, "tty": true },
    });
    session.apply(&pod("shell", ANSWERS, &tty)).await;
    let ready = ["wait", "--for=condition=Ready", "pod/shell"];
    session.run(&ready).await;
    let words = ["attach", "-it", "shell"];
    let terminal = session.start_in_terminal(&words);
    terminal.wait_raw().await;
    converse(session, &words, terminal).await;
    session.run(&["logs", "shell"]).await;
    let has_failed = |pod: &serde_json::Value| pod["status"]["phase"] == "Failed";
    session.wait_pod("shell", "to fail", has_failed).await;
    session.run(&["get", "pod", "shell"]).await;
    session.run(&["delete", "pod", "shell", "--now"]).await;
}

/// A pod for one command.
async fn once(session: &mut Session<'_>) {
    let overrides = json!({ "spec": {
        "nodeSelector": { "kubernetes.io/hostname": "NODE" }, "terminationGracePeriodSeconds": 1,
    } });
    let overrides = format!("--overrides={overrides}");
    let words = [
        "run",
        "once",
        "-it",
        "--rm",
        "--restart=Never",
        IMAGE,
        &overrides,
        "--",
        "sh",
        "-c",
        ANSWERS,
    ];
    let mut terminal = session.start_in_terminal(&words);
    terminal.wait_for("pressing enter").await;
    terminal.wait_raw().await;
    converse(session, &words, terminal).await;
    session.run(&["get", "pod", "once"]).await;
}

/// A container in a running pod, and a pod in the node's namespaces.
async fn debug(session: &mut Session<'_>) {
    let words = [
        "debug",
        "-it",
        "web",
        "-c",
        "talk",
        IMAGE,
        "--profile=general",
        "--",
        "sh",
        "-c",
        ANSWERS,
    ];
    let mut terminal = session.start_in_terminal(&words);
    terminal.wait_for("pressing enter").await;
    terminal.wait_raw().await;
    converse(session, &words, terminal).await;
    let script = format!("ls -d /host/etc; {ANSWERS}");
    let words = [
        "debug",
        "node/NODE",
        "-it",
        IMAGE,
        "--profile=general",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut terminal = session.start_in_terminal(&words);
    terminal.wait_for("pressing enter").await;
    terminal.wait_raw().await;
    converse(session, &words, terminal).await;
}

/// Two lines and their answers, and the end.
async fn converse(session: &mut Session<'_>, words: &[&str], mut terminal: BackgroundCommand) {
    terminal.write("one\n").await;
    terminal.wait_for("got one").await;
    terminal.write("bye\n").await;
    end(session, words, terminal).await;
}

async fn end(session: &mut Session<'_>, words: &[&str], terminal: BackgroundCommand) {
    let (output, code) = terminal.end().await;
    let text = format!("{output}\nexit code {code:?}");
    session.record(&words.join(" "), LineOrder::Kept, &text);
}
