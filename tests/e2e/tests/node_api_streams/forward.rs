//! Forwarded ports.

use polylet_e2e::ok;
use polylet_harness::{http, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kubectl::{Background, Kubectl};

/// The last number of the server's file.
const NUMBERS: usize = 3_000_000;

/// A kubectl that forwards a free port of this machine.
pub(crate) struct Forwarded {
    _kubectl: Background,
    pub(crate) port: u16,
}

impl Forwarded {
    pub(crate) async fn start(kubectl: &Kubectl, to: u16) -> Self {
        let ports = format!(":{to}");
        let mut forward = kubectl.start(&["port-forward", "--address=127.0.0.1", "server", &ports]);
        // Forwarding from 127.0.0.1:40001 -> 8080
        let line = forward.line().await;
        let port = line.split_whitespace().nth(2);
        let port = port.and_then(|address| address.rsplit(':').next()?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {line}"));
        Self {
            _kubectl: forward,
            port,
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        ok(TcpStream::connect(("127.0.0.1", self.port)).await)
    }
}

/// Requests, large responses, several at once, and an echo.
pub(crate) async fn ports(kubectl: &Kubectl) {
    let (web, again, echo) = tokio::join!(
        Forwarded::start(kubectl, 8080),
        Forwarded::start(kubectl, 8080),
        Forwarded::start(kubectl, 9000),
    );
    let page = ok(http::get("127.0.0.1", web.port, "/index.html").await);
    assert_eq!((page.code(), page.body.as_str()), (200, "hello\n"));
    let (first, second, third, ()) =
        tokio::join!(numbers(&web), numbers(&web), numbers(&again), echoed(&echo));
    let all: String = (1..=NUMBERS).map(|number| format!("{number}\n")).collect();
    for body in [first, second, third] {
        assert!(body == all, "{} of {} bytes", body.len(), all.len());
    }
    // Nobody listens there: the connection ends, and others go on.
    let nobody = Forwarded::start(kubectl, 1).await;
    let mut refused = nobody.connect().await;
    let read = tokio::time::timeout(wait::timeout(), refused.read(&mut [0; 1])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    let page = ok(http::get("127.0.0.1", web.port, "/index.html").await);
    assert_eq!(page.code(), 200);
}

async fn numbers(web: &Forwarded) -> String {
    let mut stream = web.connect().await;
    ok(stream.write_all(b"GET /numbers HTTP/1.0\r\n\r\n").await);
    let mut text = String::new();
    let read = tokio::time::timeout(wait::timeout(), stream.read_to_string(&mut text)).await;
    ok(read.expect("the response in time"));
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.unwrap_or_default()
}

/// Sends what is larger than all buffers, and reads it again.
async fn echoed(echo: &Forwarded) {
    let sent = vec![b'e'; 4 << 20];
    let mut stream = echo.connect().await;
    let (mut reader, mut writer) = stream.split();
    let mut received = vec![0; sent.len()];
    let work =
        async { tokio::try_join!(writer.write_all(&sent), reader.read_exact(&mut received)) };
    let done = tokio::time::timeout(wait::timeout(), work).await;
    ok(done.expect("the echo in time"));
    assert!(received == sent);
}
