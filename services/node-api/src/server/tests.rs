mod tls;

use axum::Extension;
use axum::routing::get;
use futures::{StreamExt, stream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use std::net::SocketAddr;
use std::path::PathBuf;

use super::*;
use crate::tls::test_support::self_signed;
use crate::tls_settings::TlsSettings;

/// Generous, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

type Client = TlsStream<TcpStream>;

struct TestServer {
    address: SocketAddr,
    roots: RootCertStore,
    drain: CancellationToken,
    tasks: ServerTasks,
    /// Notified when the endless response is given up.
    given_up: Arc<Notify>,
    _directory: tempfile::TempDir,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.drain.cancel();
    }
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The name of the user that a certificate names.
async fn user(Extension(user): Extension<RequestUser>) -> String {
    match user {
        RequestUser::Authenticated(user) => format!("user {}", user.name),
        RequestUser::Anonymous => "no user".to_owned(),
    }
}

fn router(given_up: &Arc<Notify>) -> Router {
    let given_up = Arc::clone(given_up);
    let endless = || async move {
        let chunk = axum::body::Bytes::from(vec![b'x'; 64 << 10]);
        let sent = NotifyOnDrop(given_up);
        Body::from_stream(stream::repeat_with(move || {
            let _ = &sent;
            Ok::<_, Infallible>(chunk.clone())
        }))
    };
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        "slow"
    };
    let lasting = || async {
        let ticks = stream::repeat(()).then(|()| tokio::time::sleep(Duration::from_millis(50)));
        let body = Body::from_stream(ticks.map(|()| Ok::<_, Infallible>("tick")));
        let mut response = axum::response::Response::new(body);
        response.extensions_mut().insert(LastingResponse);
        response
    };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/user", get(user))
        .route("/endless", get(endless))
        .route("/slow", get(slow))
        .route("/lasting", get(lasting))
}

impl TestServer {
    async fn start(limits: ServerLimits) -> Self {
        Self::start_with(limits, TlsSettings::default(), None).await
    }

    async fn start_with(
        limits: ServerLimits,
        settings: TlsSettings,
        client_ca: Option<PathBuf>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tls, certificate) = self_signed(directory.path(), settings, client_ca);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let drain = CancellationToken::new();
        let given_up = Arc::new(Notify::new());
        let router = router(&given_up);
        let tasks = ServerTasks::default();
        tokio::task::spawn_local(secure(
            listener,
            tls,
            router,
            limits,
            tasks.clone(),
            drain.clone(),
        ));
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        roots.add(certificate).unwrap();
        Self {
            address,
            roots,
            drain,
            tasks,
            given_up,
            _directory: directory,
        }
    }

    fn connector(&self, versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// A client after its handshake.
    async fn connect(&self) -> Client {
        let connect = async {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let connector = self.connector(rustls::DEFAULT_VERSIONS);
            connector.connect(name, stream).await.unwrap()
        };
        timeout(PATIENCE, connect)
            .await
            .expect("a handshake in time")
    }

    async fn send(&self, text: &str) -> Client {
        let mut client = self.connect().await;
        client.write_all(text.as_bytes()).await.unwrap();
        client
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Reads until the text was received.
async fn until(client: &mut Client, text: &str) {
    let mut received = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&received).ends_with(text) {
            let mut buffer = [0; 4096];
            let count = client.read(&mut buffer).await.unwrap();
            assert_ne!(
                count,
                0,
                "closed after {:?}",
                String::from_utf8_lossy(&received)
            );
            received.extend_from_slice(&buffer[..count]);
        }
    };
    timeout(PATIENCE, read).await.expect("a response in time");
}

/// Waits until the server closes the connection; whatever it sends is dropped.
async fn until_closed(client: &mut Client) {
    let mut buffer = [0; 4096];
    let read = async { while client.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
    timeout(PATIENCE, read).await.expect("closed in time");
}

#[tokio::test]
async fn silent_clients_lock_nobody_out() {
    let test = async {
        let server = TestServer::start(ServerLimits::default()).await;
        let mut open = Vec::new();
        for _ in 0..256 {
            open.push(server.connect().await);
        }
        for _ in 0..256 {
            open.push(server.send("GET /healthz HTTP/1.1\r\nHost: ").await);
        }
        let begun = std::time::Instant::now();
        let mut client = server.send(&request("/healthz")).await;
        until(&mut client, "ok").await;
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(open.len(), 512);
        let conditions = polylet_kit::HealthConditions::of_process().to_wire();
        let named = conditions
            .iter()
            .find(|one| one.reason == "TooManyConnections");
        assert_eq!(named.map(|one| one.object.as_str()), Some("127.0.0.1"));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_client_that_was_allowed_a_request_is_not_displaced() {
    let test = async {
        let limits = ServerLimits {
            connections: ConnectionLimits {
                untrusted: 4,
                untrusted_per_address: 4,
                untrusted_of_known: 4,
                trusted: 4,
            },
            ..ServerLimits::default()
        };
        let trusting = |request: Request<Body>| async move {
            let connection = request.extensions().get::<Arc<HttpConnection>>().unwrap();
            connection.trust();
            "trusted"
        };
        let router = router(&Arc::default()).route("/trusted", get(trusting));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let drain = CancellationToken::new();
        tokio::task::spawn_local(plain(
            listener,
            router,
            limits,
            ServerTasks::default(),
            drain.clone(),
        ));
        let send = async |client: &mut TcpStream, path: &str, response: &str| {
            client.write_all(request(path).as_bytes()).await.unwrap();
            let mut received = String::new();
            while !received.ends_with(response) {
                let mut buffer = [0; 4096];
                let count = client.read(&mut buffer).await.unwrap();
                assert_ne!(count, 0, "closed after {received:?}");
                received += &String::from_utf8_lossy(&buffer[..count]);
            }
        };
        let mut client = TcpStream::connect(address).await.unwrap();
        timeout(PATIENCE, send(&mut client, "/trusted", "trusted"))
            .await
            .unwrap();
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(TcpStream::connect(address).await.unwrap());
        }
        // The last one was admitted, so that all before it were, too.
        let last = open.last_mut().unwrap();
        timeout(PATIENCE, send(last, "/healthz", "ok"))
            .await
            .unwrap();
        timeout(PATIENCE, send(&mut client, "/healthz", "ok"))
            .await
            .unwrap();
        drain.cancel();
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn connections_end_when_their_clients_do_nothing() {
    let test = async {
        let short = Duration::from_millis(200);
        let limits = ServerLimits {
            timeouts: ConnectionTimeouts {
                first_request: short,
                idle: short,
                unread: short,
                unread_trusted: short,
            },
            ..ServerLimits::default()
        };
        let server = TestServer::start(limits).await;
        let mut silent = server.connect().await;
        until_closed(&mut silent).await;
        let mut half = server.send("GET /healthz HTTP/1.1\r\nHost: ").await;
        until_closed(&mut half).await;
        // The version of HTTP is not known yet.
        let mut less = server.send("PRI * HT").await;
        until_closed(&mut less).await;
        let mut idle = server.send(&request("/healthz")).await;
        until(&mut idle, "ok").await;
        until_closed(&mut idle).await;

        // One that waits for its response is not closed, however long it takes to make it.
        let mut waiting = server.send(&request("/slow")).await;
        until(&mut waiting, "slow").await;

        // Nobody reads: the response is given up once the buffers of the connection are full.
        let _unread = server.send(&request("/endless")).await;
        let given_up = timeout(PATIENCE, server.given_up.notified());
        given_up.await.expect("the response is given up in time");
    };
    LocalSet::new().run_until(test).await;
}

/// The process may have been stopped for longer than its clients may take.
#[tokio::test]
async fn a_request_that_came_in_time_is_answered_late() {
    let limits = ServerLimits::default();
    let first_request = Duration::from_millis(200);
    let limits = ServerLimits {
        timeouts: ConnectionTimeouts {
            first_request,
            ..limits.timeouts
        },
        ..limits
    };
    let test = async {
        let server = TestServer::start(limits).await;
        let mut answered = 0;
        while answered < 8 {
            let begun = std::time::Instant::now();
            let mut client = server.send(&request("/healthz")).await;
            if begun.elapsed() > first_request / 2 {
                // This machine is too busy: it may have come too late.
                continue;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "holds up the server, too, as a machine without time for it does"
            )]
            std::thread::sleep(first_request);
            until(&mut client, "ok").await;
            answered += 1;
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn lasting_responses_go_on_when_the_process_drains() {
    let test = async {
        let server = TestServer::start(ServerLimits::default()).await;
        let mut endless = server.send(&request("/endless")).await;
        let mut follower = server.send(&request("/lasting")).await;
        let ServerTasks {
            connections,
            lasting,
        } = server.tasks.clone();
        until(&mut follower, "tick\r\n").await;
        endless.read_exact(&mut [0; 1]).await.unwrap();
        server.drain.cancel();
        connections.close();
        // The drain waits for neither of them for long.
        timeout(PATIENCE, connections.wait()).await.unwrap();
        assert_eq!(lasting.len(), 1);
        until_closed(&mut endless).await;
        for _ in 0..10 {
            until(&mut follower, "tick\r\n").await;
        }
        drop(follower);
        lasting.close();
        timeout(PATIENCE, lasting.wait()).await.unwrap();
    };
    LocalSet::new().run_until(test).await;
}
