//! The real process with an API server that fails, is overloaded, or rejects requests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polylet_wire::podconfig::v1::Pod;
use serde_json::{Value, json};

use crate::peers::facts::{filled, pod};
use crate::{Reporter, start_peers};

/// Time, request line and body of a request.
type ReceivedRequest = (Instant, String, Value);

/// Answers status patches of the pod by a script, and then by applying them.
#[derive(Clone, Default)]
struct Server {
    script: Arc<Mutex<VecDeque<(u16, Value)>>>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Server {
    fn start(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || while server.handle_request(&stream).is_some() {});
            }
        });
        port
    }

    /// Answers one request of a connection; `None` once the client has closed it.
    fn handle_request(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(given) = line.strip_prefix("content-length:") {
                length = given.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let request = first.rsplit_once(' ')?.0.to_owned();
        let (code, answer) = self.respond(request, body);
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let mut stream = stream;
        stream.write_all((head + &answer).as_bytes()).ok()
    }

    fn respond(&self, request: String, body: Value) -> (u16, Value) {
        if request != "PATCH /api/v1/namespaces/shop/pods/web/status" {
            return failure(503, "ServiceUnavailable", json!({}));
        }
        let received = (Instant::now(), request, body.clone());
        self.received.lock().unwrap().push(received);
        let scripted = self.script.lock().unwrap().pop_front();
        scripted.unwrap_or_else(|| {
            let metadata = json!({ "name": "web", "namespace": "shop", "uid": "u" });
            let mut status = body["status"].clone();
            status.as_object_mut().unwrap().remove("$setElementOrder/conditions");
            for list in ["podIPs", "hostIPs"] {
                if let Some(items) = status[list].as_array_mut() {
                    items.remove(0);
                }
            }
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status });
            (200, pod)
        })
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

fn failure(code: u16, reason: &str, details: Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
        "reason": reason, "details": details, "code": code,
    });
    (code, status)
}

fn configure(dir: &Path, port: u16) {
    let at = dir.display();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(dir.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         containerRuntimeEndpoint: unix://{at}/nothing.sock\n---\n\
         apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\n\
         runDirectory: {at}\nstateDirectory: {at}/state\nrootDirectory: {at}/kubelet\n\
         kubeconfig: {at}/kubeconfig\nnodeIP: 192.0.2.7\n"
    );
    std::fs::write(dir.join("config.yaml"), config).unwrap();
}

#[test]
fn failed_patches_are_retried_with_back_off() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::default();
    server.script.lock().unwrap().extend([
        failure(500, "InternalError", json!({})),
        failure(429, "TooManyRequests", json!({ "retryAfterSeconds": 1 })),
        failure(409, "Conflict", json!({})),
    ]);
    let port = server.start();
    let peers = filled("1");
    peers.files.remove("u");
    let current = json!({ "phase": "Pending", "qosClass": "BestEffort" });
    let of_api = Pod {
        reported_status: current.to_string().into(),
        ..pod()
    };
    peers.others.upsert("u".into(), of_api);
    peers.mark_all_synced();
    let _serving = start_peers(dir.path(), &peers);
    configure(dir.path(), port);
    let _reporter = Reporter::start(dir.path());

    let begun = Instant::now();
    while server.received().len() < 4 {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}",
            server.received()
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
    // Less than the timeout for our own patch on the watch, which does not deliver it here.
    std::thread::park_timeout(Duration::from_secs(2));
    let received = server.received();
    assert_eq!(received.len(), 4, "{received:?}");
    let waits: Vec<u128> = received
        .windows(2)
        .map(|two| (two[1].0 - two[0].0).as_millis())
        .collect();
    // After a server error, as long as the server received for, and after a conflict.
    for (wait, least) in waits.iter().zip([200, 1000, 400]) {
        assert!(*wait >= least && *wait < least + 2000, "{waits:?}");
    }
    let (_, _, body) = &received[3];
    assert_eq!(body["metadata"], json!({ "uid": "u" }));
    assert_eq!(body["status"]["phase"], "Running");
}
