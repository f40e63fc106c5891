use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::server::HealthReporter;

type RequestCounts = Arc<Mutex<BTreeMap<String, u32>>>;

/// Probe targets that busybox cannot provide: redirects, HTTPS, gRPC. They listen on the machine's
/// network; pods on the host network reach them at their own address.
#[derive(Debug)]
pub struct Servers {
    /// Port of plain HTTP. `/to/x` redirects to `/x`, `/away` to another host, `/bad` is an error;
    /// every other path succeeds.
    pub http: u16,
    /// Port of HTTPS with a self-signed certificate for another name.
    pub https: u16,
    /// Port of `grpc.health.v1`: service `up` is serving, `down` is not.
    pub grpc: u16,
    /// Serving status of the gRPC services.
    pub health: HealthReporter,
    request_counts: RequestCounts,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Starts all servers; they stop when the value is dropped.
    pub async fn start() -> Self {
        let request_counts = RequestCounts::default();
        let (plain, http) = listen().await;
        let (secure, https) = listen().await;
        let (calls, grpc) = listen().await;
        let (health, service) = tonic_health::server::health_reporter();
        for (name, status) in [
            ("up", tonic_health::ServingStatus::Serving),
            ("down", tonic_health::ServingStatus::NotServing),
        ] {
            health.set_service_status(name, status).await;
        }
        let serve = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(calls));
        let tasks = vec![
            tokio::spawn(http_on(plain, None, Arc::clone(&request_counts))),
            tokio::spawn(http_on(secure, Some(tls()), Arc::clone(&request_counts))),
            tokio::spawn(async { crate::ok(serve.await) }),
        ];
        Self {
            http,
            https,
            grpc,
            health,
            request_counts,
            tasks,
        }
    }

    /// Number of requests for a path.
    pub fn request_count(&self, path: &str) -> u32 {
        let request_counts = self
            .request_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        request_counts.get(path).copied().unwrap_or_default()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = crate::ok(TcpListener::bind(("0.0.0.0", 0)).await);
    let port = crate::ok(listener.local_addr()).port();
    (listener, port)
}

fn tls() -> TlsAcceptor {
    let names = vec!["else.example".to_owned()];
    let made = crate::ok(rcgen::generate_simple_self_signed(names));
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = crate::ok(config).with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key);
    TlsAcceptor::from(Arc::new(crate::ok(config)))
}

async fn http_on(listener: TcpListener, tls: Option<TlsAcceptor>, request_counts: RequestCounts) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, request_counts) = (tls.clone(), Arc::clone(&request_counts));
        // A client that disconnects has its response.
        tokio::spawn(async move {
            match tls {
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => answer(stream, &request_counts).await,
                    Err(error) => Err(error),
                },
                None => answer(stream, &request_counts).await,
            }
        });
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request_counts: &RequestCounts,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    *request_counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(path.to_owned())
        .or_default() += 1;
    let (status, more) = match path.strip_prefix("/to") {
        Some(to) => ("302 Found", format!("Location: {to}\r\n")),
        None if path == "/away" => ("302 Found", "Location: http://0.0.0.0/\r\n".to_owned()),
        None if path == "/bad" => ("500 Bad", String::new()),
        None => ("200 OK", String::new()),
    };
    let answer =
        format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
