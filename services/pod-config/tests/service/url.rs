//! Pods of the URL.

use super::*;

#[tokio::test]
async fn url_outage_stops_no_pod() {
    let (port, response) = serve().await;
    let mut node = Node::new(&format!(
        "staticPodURL: http://user:secretword@127.0.0.1:{port}/pods?token=hidden\nhttpCheckFrequency: 100ms\nstaticPodURLHeader: {{X-Key: [hush]}}"
    ));
    response.send_replace((200, pod("web", "i")));
    node.start();
    let mut watch = node.watch(PodSource::Http).await;
    watch
        .until("the pod", |pods| names(pods) == ["web-n1"])
        .await;
    let first = watch.pods.clone();
    response.send_replace((500, String::new()));
    let errors = node
        .errors(|all| all.iter().any(|p| p.message.contains("status 500")))
        .await;
    assert_eq!(errors[0].origin, format!("http://127.0.0.1:{port}/pods"));
    node.kill();
    node.start();
    let mut again = node.watch(PodSource::Http).await;
    again
        .until("the restored pod", |pods| names(pods) == ["web-n1"])
        .await;
    let stale = again.pods.values().next().expect("a pod").clone();
    assert!(stale.stale_since.is_some());
    response.send_replace((200, pod("web", "i")));
    again.until("confirmed", |pods| *pods == first).await;
    response.send_replace((200, "kind: Pod".to_owned()));
    node.errors(|all| all.iter().any(|p| p.field == "apiVersion"))
        .await;
    response.send_replace((200, String::new()));
    again.until("nothing", |pods| pods.is_empty()).await;
    node.errors(|all| all.iter().any(|p| p.message.contains("empty body")))
        .await;
    let log = node.log();
    assert!(
        !["secretword", "hidden", "hush"]
            .iter()
            .any(|secret| log.contains(secret)),
        "{log}"
    );
}

/// A minimal HTTP server; the sender sets status and body of its responses.
async fn serve() -> (u16, tokio::sync::watch::Sender<(u16, String)>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let response = tokio::sync::watch::Sender::new((200, String::new()));
    let current = response.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (status, body) = current.borrow().clone();
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..n]).to_lowercase();
            let expected = [
                "get /pods?token=hidden http/1.1",
                "x-key: hush",
                "authorization: basic dxnlcjpzzwnyzxr3b3jk",
            ];
            let status = if expected.iter().all(|part| request.contains(part)) {
                status
            } else {
                400
            };
            let length = body.len();
            let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await;
        }
    });
    (port, response)
}
