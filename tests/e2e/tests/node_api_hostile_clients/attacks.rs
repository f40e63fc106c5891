//! Requests that are wrong, slow, or never end.

use futures::future::join_all;
use polylet_e2e::ok;
use polylet_harness::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, timeout};

use crate::requests::{LIMIT, code, connect, exchange, head, open};

/// Log endpoints serve nothing but logs, whatever the path says.
pub(crate) async fn paths(node: &Node) {
    let deep = "a/".repeat(20_000);
    let commands = "command=x&".repeat(4_000);
    let digits = "9".repeat(30_000);
    for path in [
        "/logs/../../etc/passwd",
        "/logs/../../../../../../etc/passwd",
        "/logs/%2e%2e/%2e%2e/etc/passwd",
        "/logs/..%2f..%2fetc%2fpasswd",
        "/logs/%252e%252e/etc/passwd",
        "/logs/..\\..\\etc\\passwd",
        "/logs/\u{2025}/etc/passwd",
        "//logs//..//..//etc//passwd",
        "/logs/%00/etc/passwd",
        "/logs//etc/passwd",
        "/containerLogs/default/web-node/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/containerLogs/default/..%2fweb-node/server",
        "/containerLogs/..%2f..%2f/web-node/server",
        "/containerLogs/default/web-node/server/../../../../etc/passwd",
        "/containerLogs/default/web-node/server?tailLines=99999999999999999999999",
        "/containerLogs/default/web-node/server?limitBytes=-1",
        "/containerLogs/default/web-node/server?sinceTime=\u{ff}",
        "http://[::1",
        "*",
        "",
        &format!("/logs/{deep}"),
        &format!("/{deep}"),
        &format!("/exec/default/web-node/server?{commands}"),
        &format!("/containerLogs/default/web-node/server?sinceSeconds={digits}"),
    ] {
        let response = exchange(node, head(path).as_bytes()).await;
        let response = response.unwrap_or_else(|| panic!("{path:.60} is not answered"));
        // A redirection leads to what is asked for by its own name: to nothing.
        let refused = matches!(code(&response), 0 | 301 | 307 | 400..=500);
        assert!(refused, "{path:.60}: {response:.200}");
        assert!(!response.contains("root:"), "{path:.60}: {response:.200}");
    }
}

/// Headers that are too long or too many end their connection, and nothing is kept of them.
pub(crate) async fn long_headers(node: &Node) {
    let long = format!("GET /healthz HTTP/1.1\r\nX-Long: {}", "x".repeat(8 << 20));
    let many = format!(
        "GET /healthz HTTP/1.1\r\n{}\r\n",
        "X-Many: x\r\n".repeat(200_000)
    );
    let token = format!(
        "GET /pods HTTP/1.1\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        "t".repeat(60 << 10)
    );
    let garbage = "\u{0}\u{1}garbage\r\n\r\n".repeat(10_000);
    for request in [&long, &many, &garbage] {
        let responses = join_all((0..20).map(|_| exchange(node, request.as_bytes()))).await;
        for response in responses {
            let response = response.expect("the connection ends");
            let code = code(&response);
            assert!(matches!(code, 0 | 400 | 431), "{response:.200}");
        }
    }
    // The certificate counts; what is no token is not looked at.
    let response = exchange(node, token.as_bytes()).await.expect("a response");
    assert!(matches!(code(&response), 200 | 431), "{response:.200}");
}

/// Those who never finish a request hold only places of their kind: 200 of them, and without a certificate.
pub(crate) async fn slow_writers(node: &Node) {
    let open = join_all((0..200).map(|_| connect(node, true))).await;
    let mut open: Vec<_> = open.into_iter().flatten().collect();
    println!("  {} connections were accepted", open.len());
    for word in ["GET", " /pods", " HTTP/1.1\r\n", "Host:", " x"] {
        for stream in &mut open {
            // Closed for another one.
            let _ = stream.write_all(word.as_bytes()).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Those that are left end by themselves.
    let ends = open.into_iter().map(|mut stream| async move {
        let _ = timeout(LIMIT, stream.read_to_end(&mut Vec::new()))
            .await
            .is_ok();
    });
    join_all(ends).await;
}

/// Those who ask for much and read nothing: what is sent to them waits where it is, in the files.
pub(crate) async fn slow_readers(node: &Node) {
    let follow = head("/containerLogs/default/story-node/main?follow=true&tailLines=20000");
    let mut streams = join_all((0..50).map(|_| open(node, &follow))).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // They may still read all of it.
    let (mut first, _) = streams.swap_remove(0);
    let mut text = String::new();
    let read = async {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = ok(first.read(&mut chunk).await);
            assert!(count > 0, "the log ends early");
            text.push_str(&String::from_utf8_lossy(&chunk[..count]));
            if text.contains("line 100000 of") {
                break;
            }
            // The end of what has been searched is enough.
            let at = text.len().saturating_sub(200);
            if text.is_char_boundary(at) {
                text.drain(..at);
            }
        }
    };
    timeout(LIMIT, read).await.expect("the whole log");
}

/// A client that sends no more is answered, or its connection ends.
pub(crate) async fn half_closed(node: &Node) {
    let work = (0..50).map(|at| async move {
        let mut stream = ok(connect(node, false).await);
        let path = match at % 3 {
            0 => "/pods",
            1 => "/containerLogs/default/web-node/server?follow=true",
            _ => "/exec/default/web-node/server?command=cat&input=1&output=1",
        };
        let mut request = head(path);
        if at % 3 == 2 {
            request = crate::storms::upgrade(path);
        }
        ok(stream.write_all(request.as_bytes()).await);
        ok(stream.get_mut().0.shutdown().await);
        let mut all = Vec::new();
        // A follower has no end of its own.
        let limit = Duration::from_secs(2);
        let _ = timeout(limit, stream.read_to_end(&mut all)).await.is_ok();
    });
    join_all(work).await;
}
