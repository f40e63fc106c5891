//! exec, attach and cp.

use std::fs;

use polylet_e2e::ok;

use crate::kubectl::{Kubectl, run as run_command, text};

/// Larger than all buffers on the way.
const LARGE: usize = 8 << 20;

/// Bytes that are no text, and differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..length).map(|_| random.u8(..)).collect()
}

fn shell(script: &str) -> [&str; 6] {
    ["exec", "server", "--", "sh", "-c", script]
}

/// Commands: their output, input and exit code.
pub(crate) async fn run(kubectl: &Kubectl) {
    let both = kubectl.run(&shell("echo out; echo err >&2"), b"").await;
    assert!(both.status.success(), "{both:?}");
    assert_eq!(
        (text(&both.stdout).as_str(), text(&both.stderr).as_str()),
        ("out\n", "err\n")
    );
    for code in [1, 7, 255] {
        let script = format!("echo before; exit {code}");
        let output = kubectl.run(&shell(&script), b"").await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(text(&output.stdout), "before\n");
        let message = format!("command terminated with exit code {code}");
        assert!(text(&output.stderr).contains(&message), "{output:?}");
    }
    let missing = kubectl.run(&["exec", "server", "--", "no-such-program"], b"");
    let missing = missing.await;
    assert!(!missing.status.success(), "{missing:?}");
    assert!(
        text(&missing.stderr).contains("no-such-program"),
        "{missing:?}"
    );

    // The command ends because its input does, and everything arrives in both directions.
    let input = bytes(LARGE);
    let echo = kubectl.run(&["exec", "-i", "server", "--", "cat"], &input);
    let echo = echo.await;
    assert!(echo.status.success(), "{}", text(&echo.stderr));
    assert!(
        echo.stdout == input,
        "{} bytes came back",
        echo.stdout.len()
    );
    let count = ["exec", "-i", "server", "--", "wc", "-c"];
    let counted = kubectl.output(&count, &input).await;
    assert_eq!(counted.trim(), LARGE.to_string());
    // A command that does not read its input ends nevertheless. With more input than the runtime's buffers
    // hold, containerd 2.1 may stop reading the connection, and does not send the command's result.
    let unread = kubectl.run(&["exec", "-i", "server", "--", "true"], &input[..1024]);
    let unread = unread.await;
    assert!(unread.status.success(), "{}", text(&unread.stderr));
}

/// A terminal has the client's size, and one stream of output.
pub(crate) async fn terminal(kubectl: &Kubectl) {
    let script =
        "tty; while ! stty size | grep -q '^40 100$'; do sleep 0.05; done; echo sized >&2; exit 3";
    let program = kubectl.path();
    let inner =
        format!("stty rows 40 cols 100; exec {program} exec -it server -- sh -c \"{script}\"");
    // Provides kubectl with a terminal of its own.
    let mut command = kubectl.command("script");
    command.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
    let output = run_command(command, "exec with a terminal", b"").await;
    let out = text(&output.stdout);
    assert!(out.contains("/dev/pts/") && out.contains("sized"), "{out}");
    assert_eq!(output.status.code(), Some(3), "{out}");
}

/// The container reads the client's input and ends with it.
pub(crate) async fn attach(kubectl: &Kubectl, pod: &str) {
    let mut attached = kubectl.start(&["attach", "-i", pod]);
    attached.write("one\n").await;
    assert_eq!(attached.line().await, "read one");
    attached.write("two\n").await;
    assert_eq!(attached.line().await, "read two");
    let (rest, succeeded) = attached.end().await;
    assert!(succeeded, "{rest}");
    assert_eq!(rest.trim_end(), "end");
}

/// Files are copied in both directions.
pub(crate) async fn copy(kubectl: &Kubectl) {
    let name = kubectl.protocol().name();
    let dir = kubectl.scratch().join(format!("copied-{name}"));
    ok(fs::create_dir_all(dir.join("in/below")));
    let content = bytes(LARGE);
    ok(fs::write(dir.join("in/large"), &content));
    ok(fs::write(dir.join("in/below/empty"), ""));
    let path = |name: &str| dir.join(name).display().to_string();
    let remote = format!("server:/tmp/{name}");
    kubectl.output(&["cp", &path("in"), &remote], b"").await;
    kubectl.output(&["cp", &remote, &path("out")], b"").await;
    let copied = ok(fs::read(dir.join("out/large")));
    assert!(copied == content, "{} bytes were copied", copied.len());
    assert!(dir.join("out/below/empty").is_file());
}
