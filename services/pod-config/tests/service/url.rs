//! Pods from a URL.

use super::*;

#[tokio::test]
async fn a_url_gives_pods_and_its_absence_takes_none() {
    let (port, answer) = serve().await;
    let mut node = Node::new(&format!(
        "staticPodURL: http://user:secretword@127.0.0.1:{port}/pods?token=hidden\nhttpCheckFrequency: 100ms\nstaticPodURLHeader: {{X-Key: [hush]}}"
    ));
    answer.send_replace((200, pod("web", "i")));
    node.start();
    let mut watch = node.watch(PodSource::Http).await;
    watch
        .until("the pod", |pods| names(pods) == ["web-n1"])
        .await;
    let first = watch.pods.clone();
    answer.send_replace((500, String::new()));
    let problems = node
        .problems(|all| all.iter().any(|p| p.message.contains("status 500")))
        .await;
    assert_eq!(problems[0].origin, format!("http://127.0.0.1:{port}/pods"));
    node.kill();
    node.start();
    let mut again = node.watch(PodSource::Http).await;
    again
        .until("the kept pod", |pods| names(pods) == ["web-n1"])
        .await;
    let stale = again.pods.values().next().expect("a pod").clone();
    assert!(stale.stale_since.is_some());
    answer.send_replace((200, pod("web", "i")));
    again.until("confirmed", |pods| *pods == first).await;
    answer.send_replace((200, "kind: Pod".to_owned()));
    node.problems(|all| all.iter().any(|p| p.field == "apiVersion"))
        .await;
    answer.send_replace((200, String::new()));
    again.until("nothing", |pods| pods.is_empty()).await;
    node.problems(|all| all.iter().any(|p| p.message.contains("empty body")))
        .await;
    let log = node.log();
    assert!(
        !["secretword", "hidden", "hush"]
            .iter()
            .any(|secret| log.contains(secret)),
        "{log}"
    );
}

/// A little HTTP server that answers as it is told.
async fn serve() -> (u16, tokio::sync::watch::Sender<(u16, String)>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = tokio::sync::watch::Sender::new((200, String::new()));
    let told = answer.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (status, body) = told.borrow().clone();
            let mut asked = vec![0; 4096];
            let n = stream.read(&mut asked).await.unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..n]).to_lowercase();
            let wanted = [
                "get /pods?token=hidden http/1.1",
                "x-key: hush",
                "authorization: basic dxnlcjpzzwnyzxr3b3jk",
            ];
            let status = if wanted.iter().all(|w| asked.contains(w)) {
                status
            } else {
                400
            };
            let length = body.len();
            let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await;
        }
    });
    (port, answer)
}
