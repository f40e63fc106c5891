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

type Asked = Arc<Mutex<BTreeMap<String, u32>>>;

/// What probes may ask and busybox cannot be: redirects, HTTPS, gRPC. They listen on the machine's
/// network, where a pod on the host's network has them under its own address.
#[derive(Debug)]
pub struct Servers {
    /// The port of plain HTTP. `/to/x` redirects to `/x`, `/away` to another host, `/bad` is an
    /// error; all else is well.
    pub http: u16,
    /// The same over TLS, with a certificate that nobody signed, for another name.
    pub https: u16,
    /// The port of `grpc.health.v1`: `up` is well, `down` is not.
    pub grpc: u16,
    /// How services of it are.
    pub health: HealthReporter,
    asked: Asked,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Starts all of them; they end with the value.
    pub async fn start() -> Self {
        let asked = Asked::default();
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
            tokio::spawn(http_on(plain, None, Arc::clone(&asked))),
            tokio::spawn(http_on(secure, Some(tls()), Arc::clone(&asked))),
            tokio::spawn(async { crate::ok(serve.await) }),
        ];
        Self {
            http,
            https,
            grpc,
            health,
            asked,
            tasks,
        }
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> u32 {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(path).copied().unwrap_or_default()
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

async fn http_on(listener: TcpListener, tls: Option<TlsAcceptor>, asked: Asked) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, asked) = (tls.clone(), Arc::clone(&asked));
        // One that goes away in the middle has had its answer.
        tokio::spawn(async move {
            match tls {
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => answer(stream, &asked).await,
                    Err(error) => Err(error),
                },
                None => answer(stream, &asked).await,
            }
        });
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    asked: &Asked,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    *asked
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
