//! `exec`, `attach`, `cp`, `port-forward` and `debug` without a terminal.

use std::fs;

use polylet_e2e::ok;
use polylet_harness::http;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::manifests::{ANSWERS, pod};
use crate::session::{LineOrder, Session};

pub(crate) async fn run(session: &mut Session<'_>) {
    exec(session).await;
    attach(session).await;
    copy(session).await;
    forward(session).await;
    debug(session).await;
}

async fn exec(session: &mut Session<'_>) {
    for words in [
        &["web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"][..],
        &["web", "-c", "side", "--", "true"],
        &["web", "--", "env"],
        &[
            "web",
            "--",
            "cat",
            "/etc/hosts",
            "/etc/resolv.conf",
            "/settings/key",
            "/data/file",
        ],
        &["web", "--", "sh", "-c", "id; hostname; pwd"],
        &["web", "--", "sh", "-c", "kill -9 $$"],
        &["web", "--", "no-such-program"],
        &["web", "--", "/settings"],
        &["web", "-c", "none", "--", "true"],
        &["web", "-c", "prepare", "--", "true"],
        &["web", "--"],
        &["none", "--", "true"],
        &["-t", "web", "--", "tty"],
    ] {
        let order = if words.contains(&"env") {
            LineOrder::Any
        } else {
            LineOrder::Kept
        };
        session.run_in(order, &[&["exec"], words].concat()).await;
    }
    let words = ["exec", "-i", "web", "--", "wc", "-c"];
    let input = vec![b'x'; 300_000];
    session.run_as(&words, LineOrder::Kept, &input).await;
}

async fn attach(session: &mut Session<'_>) {
    let never = json!({
        "restartPolicy": "Never",
        "container": { "stdin": true, "stdinOnce": true },
    });
    session.apply(&pod("answers", ANSWERS, &never)).await;
    let ready = ["wait", "--for=condition=Ready", "pod/answers"];
    session.run(&ready).await;
    let words = ["attach", "-i", "answers"];
    let mut attached = session.start(&words);
    attached.write("one\n").await;
    attached.wait_for("got one").await;
    attached.write("two\n").await;
    attached.wait_for("got two").await;
    attached.close();
    let (output, code) = attached.end().await;
    let text = format!("{output}\nexit code {code:?}");
    session.record(&words.join(" "), LineOrder::Kept, &text);
    session.run(&["logs", "answers"]).await;
    session.run(&["attach", "web", "-c", "none"]).await;
    session.run(&["attach", "-it", "web"]).await;
    session.run(&["delete", "pod", "answers", "--now"]).await;
}

async fn copy(session: &mut Session<'_>) {
    let content: Vec<u8> = (0..400_000_u32).map(|at| (at % 251) as u8).collect();
    ok(fs::create_dir_all(session.file("in/below")));
    ok(fs::write(session.file("in/file"), &content));
    ok(fs::write(session.file("in/below/empty"), ""));
    for words in [
        &["cp", "DIR/in", "web:/tmp/copied"][..],
        &["exec", "web", "--", "ls", "-R", "/tmp/copied"],
        &["cp", "web:/tmp/copied", "DIR/out"],
        &["cp", "web:/tmp/copied/file", "DIR/one", "-c", "main"],
        &["cp", "web:/tmp/none", "DIR/none"],
        &["cp", "DIR/none", "web:/tmp/none"],
        &["cp", "DIR/in/below/empty", "web:/settings/file"],
        &["cp", "DIR/in/file", "none:/tmp/file"],
    ] {
        session.run(words).await;
    }
    for name in ["out/file", "one"] {
        let copied = fs::read(session.file(name)).unwrap_or_default();
        let text = (copied == content).to_string();
        session.record(&format!("{name} is the same"), LineOrder::Kept, &text);
    }
}

async fn forward(session: &mut Session<'_>) {
    for (port, request, answer) in [
        (8080, Some("/index.html"), "hello"),
        (9000, None, "echo"),
        // Nobody listens there.
        (1, None, ""),
    ] {
        let to = format!(":{port}");
        let words = ["port-forward", "--address=127.0.0.1", "web", &to];
        let mut forward = session.start(&words);
        forward.wait_for("Forwarding from").await;
        let line = forward.output();
        let local = line.split_whitespace().nth(2);
        let local = local.and_then(|address| address.rsplit(':').next()?.parse::<u16>().ok());
        let local = local.unwrap_or_default();
        let found = match request {
            Some(path) => match http::get("127.0.0.1", local, path).await {
                Ok(page) => page.body,
                Err(error) => error.to_string(),
            },
            None => echo(local).await,
        };
        session.record(&format!("port {port}"), LineOrder::Kept, found.trim_end());
        let output = if answer.is_empty() {
            // kubectl ends after such an error.
            forward.end().await.0
        } else {
            forward.interrupt().await
        };
        let output = output.replace(&local.to_string(), "LOCAL");
        session.record(&words.join(" "), LineOrder::Kept, &output);
    }
    session.run(&["port-forward", "none", ":80"]).await;
}

/// What comes back of a word.
async fn echo(port: u16) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"echo").await?;
        let mut back = [0; 4];
        stream.read_exact(&mut back).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&back).into_owned())
    };
    let limited = tokio::time::timeout(polylet_harness::wait::timeout(), exchange).await;
    match limited {
        Ok(Ok(back)) => back,
        Ok(Err(_)) => "closed".to_owned(),
        Err(_) => "no answer".to_owned(),
    }
}

/// Ephemeral containers, and a copy of the pod.
async fn debug(session: &mut Session<'_>) {
    let seen = "tr '\\0' ' ' </proc/1/cmdline; echo; ls /proc/1/root/www; exit 5";
    let image = "--image=polylet-test:1";
    session
        .run(&[
            "debug",
            "web",
            "-c",
            "look",
            image,
            "--target=main",
            "--profile=general",
            "--",
            "sh",
            "-c",
            seen,
        ])
        .await;
    let has_ended = |pod: &Value| {
        let ended = pod.pointer("/status/ephemeralContainerStatuses/0/state/terminated");
        ended.is_some()
    };
    session.wait_pod("web", "to be debugged", has_ended).await;
    session.run(&["logs", "web", "-c", "look"]).await;
    session.run(&["get", "pod", "web"]).await;
    session.describe_pod("web").await;
    // Privileged, in a pod without other privileged containers.
    let mounts = "mount -t tmpfs none /proc && echo may mount";
    session
        .run(&[
            "debug",
            "web",
            "-c",
            "admin",
            image,
            "--profile=sysadmin",
            "--",
            "sh",
            "-c",
            mounts,
        ])
        .await;
    let admin_has_ended = |pod: &Value| {
        let statuses = pod["status"]["ephemeralContainerStatuses"].as_array();
        let mut admin = statuses.into_iter().flatten();
        let admin = admin.find(|status| status["name"] == "admin");
        admin.is_some_and(|status| status["state"]["terminated"].is_object())
    };
    session
        .wait_pod("web", "to be administered", admin_has_ended)
        .await;
    session.run(&["logs", "web", "-c", "admin"]).await;
    session
        .run(&[
            "debug",
            "web",
            "-c",
            "lost",
            image,
            "--target=none",
            "--profile=general",
            "--",
            "true",
        ])
        .await;
    session
        .run(&[
            "debug",
            "web",
            "--copy-to=web-copy",
            "-c",
            "extra",
            image,
            "--profile=general",
            "--share-processes",
            "--",
            "sh",
            "-c",
            "echo extra; sleep 3600",
        ])
        .await;
    let is_running = |pod: &Value| {
        let statuses = pod["status"]["containerStatuses"].as_array();
        statuses.is_some_and(|all| {
            all.len() == 3 && all.iter().all(|one| one["state"]["running"].is_object())
        })
    };
    session.wait_pod("web-copy", "to run", is_running).await;
    session.run(&["logs", "web-copy", "-c", "extra"]).await;
    let processes = "pgrep -x httpd >/dev/null && echo sees the processes of main";
    session
        .run(&[
            "exec", "web-copy", "-c", "extra", "--", "sh", "-c", processes,
        ])
        .await;
    session.run(&["delete", "pod", "web-copy", "--now"]).await;
}
