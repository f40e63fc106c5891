//! Counts executions of containers, on this machine: its memory survives the power cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Executions by pod UID: one identifier for each, so that repeated reports count once.
type Reports = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Counts {
    begun: Reports,
    /// Executions that read an incomplete ConfigMap.
    torn: Reports,
}

/// A server to which containers report their start: `GET /begun/<pod UID>/<execution>`, and
/// `GET /torn/<pod UID>/<execution>` if a volume's content is incomplete.
pub(crate) struct ExecutionCounter {
    port: u16,
    counts: Arc<Mutex<Counts>>,
}

impl ExecutionCounter {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self { port, counts })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Number of executions of each pod.
    pub(crate) fn begun(&self) -> BTreeMap<String, usize> {
        let counts = lock(&self.counts);
        let all = counts.begun.iter();
        all.map(|(uid, runs)| (uid.clone(), runs.len())).collect()
    }

    /// Pods that read an incomplete ConfigMap.
    pub(crate) fn torn(&self) -> Vec<String> {
        lock(&self.counts).torn.keys().cloned().collect()
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the report, then responds: a container that has its response was counted.
async fn respond(mut stream: TcpStream, counts: Arc<Mutex<Counts>>) {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_buf(&mut request).await {
            Ok(1..) if request.len() < 1 << 14 => {}
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request);
    let path = text.split(' ').nth(1).unwrap_or_default();
    let words: Vec<&str> = path.split('/').collect();
    if let ["", kind, uid, execution] = words[..] {
        let mut counts = lock(&counts);
        let reports = match kind {
            "begun" => &mut counts.begun,
            _ => &mut counts.torn,
        };
        let executions = reports.entry(uid.to_owned()).or_default();
        executions.insert(execution.to_owned());
    }
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // The container may be gone.
    let _ = stream.write_all(response).await;
}
