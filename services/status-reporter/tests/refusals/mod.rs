//! The real process before an API server that is busy, broken or of another mind.

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

/// What one request asked, when, and with which body.
type Asked = (Instant, String, Value);

/// Answers patches of the one pod's status by the script, and then by doing them.
#[derive(Clone, Default)]
struct Server {
    script: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || while server.answer(&stream).is_some() {});
            }
        });
        port
    }

    /// One request of a connection; `None` when the client is done with it.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
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
        let (code, answer) = self.judge(request, body);
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let mut stream = stream;
        stream.write_all((head + &answer).as_bytes()).ok()
    }

    fn judge(&self, request: String, body: Value) -> (u16, Value) {
        if request != "PATCH /api/v1/namespaces/shop/pods/web/status" {
            return refusal(503, "ServiceUnavailable", json!({}));
        }
        let asked = (Instant::now(), request, body.clone());
        self.asked.lock().unwrap().push(asked);
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

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn refusal(code: u16, reason: &str, details: Value) -> (u16, Value) {
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
fn refusals_are_answered_with_patience_and_the_rest_is_silence() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::default();
    server.script.lock().unwrap().extend([
        refusal(500, "InternalError", json!({})),
        refusal(429, "TooManyRequests", json!({ "retryAfterSeconds": 1 })),
        refusal(409, "Conflict", json!({})),
    ]);
    let port = server.start();
    let peers = filled("1");
    peers.files.remove(&"u".into());
    let held = json!({ "phase": "Pending", "qosClass": "BestEffort" });
    let of_api = Pod {
        reported_status: held.to_string().into(),
        ..pod()
    };
    peers.others.upsert("u".into(), of_api);
    peers.all_whole();
    let _serving = start_peers(dir.path(), &peers);
    configure(dir.path(), port);
    let _reporter = Reporter::start(dir.path());

    let begun = Instant::now();
    while server.asked().len() < 4 {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}",
            server.asked()
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
    // Less than the watch may take to tell our own patch, which nobody does here.
    std::thread::park_timeout(Duration::from_secs(2));
    let asked = server.asked();
    assert_eq!(asked.len(), 4, "{asked:?}");
    let waits: Vec<u128> = asked
        .windows(2)
        .map(|two| (two[1].0 - two[0].0).as_millis())
        .collect();
    // After a fault of its own, as long as the server says, and after a conflict a little longer
    // than after the first refusal.
    for (wait, least) in waits.iter().zip([200, 1000, 400]) {
        assert!(*wait >= least && *wait < least + 2000, "{waits:?}");
    }
    let (_, _, body) = &asked[3];
    assert_eq!(body["metadata"], json!({ "uid": "u" }));
    assert_eq!(body["status"]["phase"], "Running");
}
