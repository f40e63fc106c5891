use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use polylet_harness::HarnessError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const WELL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const UNWELL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A server that probes ask: well or unwell as it is told, and knows when it first said well.
pub(crate) struct Server {
    port: u16,
    mood: Rc<Mood>,
}

#[derive(Default)]
struct Mood {
    well: Cell<bool>,
    since: Cell<Option<Instant>>,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, HarnessError> {
        let failed = |source| HarnessError::Run {
            program: "a server for probes".to_owned(),
            source,
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let mood = Rc::<Mood>::default();
        let told = Rc::clone(&mood);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One that goes away in the middle has had its answer.
                let _ = answer(stream, &told).await;
            }
        });
        Ok(Self { port, mood })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How the next questions are answered.
    pub(crate) fn turn(&self, well: bool) {
        self.mood.well.set(well);
        self.mood.since.set(None);
    }

    /// When it first said well since it was turned.
    pub(crate) fn well_since(&self) -> Option<Instant> {
        self.mood.since.get()
    }
}

async fn answer(mut stream: TcpStream, mood: &Mood) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(());
        }
        head.extend(part.iter().take(read));
    }
    let well = mood.well.get();
    if well && mood.since.get().is_none() {
        mood.since.set(Some(Instant::now()));
    }
    stream.write_all(if well { WELL } else { UNWELL }).await?;
    stream.shutdown().await
}
