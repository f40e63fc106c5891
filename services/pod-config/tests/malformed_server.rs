//! A malformed API server: responses that a real one cannot be made to send, over HTTP/1.1 without
//! TLS.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylet_wire::podconfig::v1::PodSource;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

mod node;

use node::{Node, names};

/// The responses to all requests; lists are empty for other paths than that of pods.
#[derive(Clone, Debug)]
enum Behavior {
    /// Status, headers and body.
    Responds(u16, &'static str, &'static str),
    /// Items of lists, and lines of watches, which then stay open.
    Lists(Vec<String>, Vec<String>),
}

#[derive(Clone)]
struct Server {
    port: u16,
    behavior: Arc<Mutex<Behavior>>,
    /// Times and paths of the requests.
    requests: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    async fn start(behavior: Behavior) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Server {
            port: listener.local_addr().expect("an address").port(),
            behavior: Arc::new(Mutex::new(behavior)),
            requests: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().expect("the behavior") = behavior;
    }

    fn requests(&self, part: &str) -> Vec<Instant> {
        let requests = self.requests.lock().expect("the paths");
        let those = requests.iter().filter(|(_, path)| path.contains(part));
        those.map(|(at, _)| *at).collect()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut read = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                    break end + 4;
                }
                let mut more = [0; 4096];
                match stream.read(&mut more).await {
                    Ok(n) if n > 0 => read.extend_from_slice(&more[..n]),
                    _ => return,
                }
            };
            let head: Vec<u8> = read.drain(..end).collect();
            let head = String::from_utf8(head).expect("a request");
            let path = head.split(' ').nth(1).expect("a path").to_owned();
            self.requests
                .lock()
                .expect("the paths")
                .push((Instant::now(), path.clone()));
            if !self.answer(&mut stream, &path).await {
                return;
            }
        }
    }

    /// Sends the response; false when the connection ends with it.
    async fn answer(&self, stream: &mut TcpStream, path: &str) -> bool {
        let behavior = self.behavior.lock().expect("the behavior").clone();
        let (items, lines) = match behavior {
            Behavior::Responds(code, headers, body) => {
                let answer = format!(
                    "HTTP/1.1 {code} Odd\r\n{headers}content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                return stream.write_all(answer.as_bytes()).await.is_ok();
            }
            Behavior::Lists(items, lines) if path.contains("/pods") => (items, lines),
            Behavior::Lists(..) => Default::default(),
        };
        if !path.contains("watch=true") {
            let items = items.join(",");
            let body = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            return stream.write_all(answer.as_bytes()).await.is_ok();
        }
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut answer = head.to_owned();
        for line in lines {
            answer += &format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
        }
        if stream.write_all(answer.as_bytes()).await.is_ok() {
            sleep(Duration::from_secs(60)).await;
        }
        false
    }
}

fn node_of(server: &Server) -> Node {
    let mut node = Node::new("");
    let kubeconfig = node.path("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{}'}}}}]\n\
         users: [{{name: u, user: {{token: hunter2}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        server.port
    );
    fs::write(&kubeconfig, text).expect("the kubeconfig");
    let config = fs::read_to_string(node.path("config.yaml")).expect("config");
    let config = format!("{config}kubeconfig: {}\n", kubeconfig.display());
    fs::write(node.path("config.yaml"), config).expect("config");
    node.start();
    node
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{name}-uid"}},"spec":{spec}}}"#
    )
}

fn good(name: &str) -> String {
    pod(name, r#"{"containers":[{"name":"c","image":"i"}]}"#)
}

#[tokio::test]
async fn retry_after_of_an_overloaded_server_is_respected() {
    let busy = Behavior::Responds(429, "retry-after: 2\r\n", "Too many requests");
    let server = Server::start(busy).await;
    let node = node_of(&server);
    node.errors(|all| all.iter().any(|p| p.message.contains("429")))
        .await;
    let first = server.requests("/pods")[0];
    server.set(Behavior::Lists(vec![good("a")], Vec::new()));
    let mut watch = node.watch(PodSource::Api).await;
    watch.until("the pod", |pods| names(pods) == ["a"]).await;
    assert!(first.elapsed() >= Duration::from_secs(2));
    let lists = server.requests("/pods").len() - server.requests("watch=true&").len();
    assert!(lists <= 2, "{lists}");
    node.errors(|all| all.is_empty()).await;
    assert!(!node.log().contains("hunter2"));
}

#[tokio::test]
async fn requests_to_a_failing_server_back_off() {
    for behavior in [
        Behavior::Responds(500, "", "secret-words"),
        Behavior::Responds(200, "", "<html>secret-words</html>"),
    ] {
        let server = Server::start(behavior).await;
        let node = node_of(&server);
        sleep(Duration::from_secs(3)).await;
        let requests = server.requests("").len();
        // 50, 100, … ms: six attempts to list pods; all other requests wait for them.
        assert!((3..=20).contains(&requests), "{requests}");
        assert!(!node.log().contains("secret-words"), "{}", node.log());
        server.set(Behavior::Lists(vec![good("a")], Vec::new()));
        let mut watch = node.watch(PodSource::Api).await;
        watch.until("the pod", |pods| names(pods) == ["a"]).await;
    }
}

#[tokio::test]
async fn invalid_pod_does_not_affect_others() {
    let odd = pod("odd", r#"{"containers":"many"}"#);
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let gone =
        r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
    let lines = vec![
        event("ADDED", &good("b")),
        event("MODIFIED", &pod("a", r#"{"containers":[{"image":7}]}"#)),
        event("SOMETHING", &good("never")),
        event("BOOKMARK", r#"{"metadata":{"resourceVersion":"9"}}"#),
    ];
    let server = Server::start(Behavior::Lists(vec![good("a"), odd.clone()], lines)).await;
    let node = node_of(&server);
    let mut watch = node.watch(PodSource::Api).await;
    watch
        .until("a and b", |pods| names(pods) == ["a", "b"])
        .await;
    node.errors(|all| {
        let reported = |origin: &str, field: &str| {
            let mut found = all.iter().filter(|p| p.origin.ends_with(origin));
            found.any(|p| p.field.starts_with(field))
        };
        reported("default/odd", "spec.containers") && reported("default/a", "spec.containers")
    })
    .await;
    assert!(
        String::from_utf8_lossy(&watch.pods["a-uid"].manifest).contains(r#""image":"i""#),
        "the last valid version is kept"
    );

    // The next watch fails with an expired version: pods are listed again, and one is removed.
    let server = Server::start(Behavior::Lists(
        vec![good("a"), good("b")],
        vec![event("ERROR", gone)],
    ))
    .await;
    let node = node_of(&server);
    let mut watch = node.watch(PodSource::Api).await;
    watch
        .until("a and b", |pods| names(pods) == ["a", "b"])
        .await;
    server.set(Behavior::Lists(vec![good("b")], vec![event("ERROR", gone)]));
    watch.until("b", |pods| names(pods) == ["b"]).await;
    sleep(Duration::from_secs(2)).await;
    let requests = server.requests("/pods").len();
    assert!(requests < 20, "loop of requests: {requests}");
}
