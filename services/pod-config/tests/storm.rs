//! An API server that has a bad day: what no real one does when it is asked to. It speaks HTTP/1.1
//! without TLS.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylet_wire::podconfig::v1::PodSource;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

mod node;

use node::{Node, names};

/// What is answered to everything about pods; to all else, the same, or that there is nothing.
#[derive(Clone, Debug)]
enum Mood {
    /// With this status, these headers and this body.
    Refuses(u16, &'static str, &'static str),
    /// Lists with these items; watches that tell these lines, and last.
    Lists(Vec<String>, Vec<String>),
}

#[derive(Clone)]
struct Server {
    port: u16,
    mood: Arc<Mutex<Mood>>,
    /// Paths that were asked for, and when.
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    async fn start(mood: Mood) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Server {
            port: listener.local_addr().expect("an address").port(),
            mood: Arc::new(Mutex::new(mood)),
            asked: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().expect("the mood") = mood;
    }

    fn asked(&self, part: &str) -> Vec<Instant> {
        let asked = self.asked.lock().expect("the paths");
        let those = asked.iter().filter(|(_, path)| path.contains(part));
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
            self.asked
                .lock()
                .expect("the paths")
                .push((Instant::now(), path.clone()));
            if !self.answer(&mut stream, &path).await {
                return;
            }
        }
    }

    /// False at the end of the connection.
    async fn answer(&self, stream: &mut TcpStream, path: &str) -> bool {
        let mood = self.mood.lock().expect("the mood").clone();
        let (items, lines) = match mood {
            Mood::Refuses(code, headers, body) => {
                let answer = format!(
                    "HTTP/1.1 {code} Odd\r\n{headers}content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                return stream.write_all(answer.as_bytes()).await.is_ok();
            }
            Mood::Lists(items, lines) if path.contains("/pods") => (items, lines),
            Mood::Lists(..) => Default::default(),
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
async fn a_busy_server_is_left_alone_as_long_as_it_asks() {
    let busy = Mood::Refuses(429, "retry-after: 2\r\n", "Too many requests");
    let server = Server::start(busy).await;
    let node = node_of(&server);
    node.problems(|all| all.iter().any(|p| p.message.contains("429")))
        .await;
    let first = server.asked("/pods")[0];
    server.set(Mood::Lists(vec![good("a")], Vec::new()));
    let mut watch = node.watch(PodSource::Api).await;
    watch.until("the pod", |pods| names(pods) == ["a"]).await;
    assert!(first.elapsed() >= Duration::from_secs(2));
    let lists = server.asked("/pods").len() - server.asked("watch=true&").len();
    assert!(lists <= 2, "{lists}");
    node.problems(|all| all.is_empty()).await;
    assert!(!node.log().contains("hunter2"));
}

#[tokio::test]
async fn a_broken_server_is_asked_less_and_less() {
    for mood in [
        Mood::Refuses(500, "", "secret-words"),
        Mood::Refuses(200, "", "<html>secret-words</html>"),
    ] {
        let server = Server::start(mood).await;
        let node = node_of(&server);
        sleep(Duration::from_secs(3)).await;
        let asked = server.asked("").len();
        // 50, 100, … ms: six tries of pods; the others wait for it to be well.
        assert!((3..=20).contains(&asked), "{asked}");
        assert!(!node.log().contains("secret-words"), "{}", node.log());
        server.set(Mood::Lists(vec![good("a")], Vec::new()));
        let mut watch = node.watch(PodSource::Api).await;
        watch.until("the pod", |pods| names(pods) == ["a"]).await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_concerns_its_own_pod_alone() {
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
    let server = Server::start(Mood::Lists(vec![good("a"), odd.clone()], lines)).await;
    let node = node_of(&server);
    let mut watch = node.watch(PodSource::Api).await;
    watch
        .until("a and b", |pods| names(pods) == ["a", "b"])
        .await;
    node.problems(|all| {
        let told = |origin: &str, field: &str| {
            let mut found = all.iter().filter(|p| p.origin.ends_with(origin));
            found.any(|p| p.field.starts_with(field))
        };
        told("default/odd", "spec.containers") && told("default/a", "spec.containers")
    })
    .await;
    assert!(
        String::from_utf8_lossy(&watch.pods["a-uid"].manifest).contains(r#""image":"i""#),
        "what was accepted before stands"
    );

    // The next watch is told that its version is too old: everything is listed again, and what is
    // not there any more is gone.
    let server = Server::start(Mood::Lists(
        vec![good("a"), good("b")],
        vec![event("ERROR", gone)],
    ))
    .await;
    let node = node_of(&server);
    let mut watch = node.watch(PodSource::Api).await;
    watch
        .until("a and b", |pods| names(pods) == ["a", "b"])
        .await;
    server.set(Mood::Lists(vec![good("b")], vec![event("ERROR", gone)]));
    watch.until("b", |pods| names(pods) == ["b"]).await;
    sleep(Duration::from_secs(2)).await;
    let asked = server.asked("/pods").len();
    assert!(asked < 20, "asked in a circle: {asked}");
}
