//! The handlers against real servers on the loopback interface.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_stream::wrappers::TcpListenerStream;

use super::within::{judge, within};
use super::{grpc, http, net};
use crate::core::types::{HttpAsk, Observation};

const HOST: &str = "127.0.0.1";
const SECOND: Duration = Duration::from_secs(1);

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Reads one request and answers it; gives the request's head.
async fn answer_one(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &dyn Fn(&str) -> String,
) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let _ = stream.write_all(answer(path).as_bytes()).await;
    let _ = stream.shutdown().await;
    head
}

/// A server that answers each path with what `answer` says; and the heads of all requests.
async fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let (listener, port) = listen().await;
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let local = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let head = answer_one(stream, &answer).await;
            seen.lock().unwrap().push(head);
        }
    };
    tokio::task::spawn_local(local);
    (port, heads)
}

fn response(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn at(port: u16, path: &str) -> HttpAsk {
    HttpAsk {
        host: None,
        port,
        path: path.to_owned(),
        https: false,
        headers: Vec::new(),
    }
}

async fn get(ask: &HttpAsk) -> Observation {
    within(SECOND, http::ask(ask, HOST, &polylet_http::Tls::default())).await
}

fn why(said: Observation) -> String {
    match said {
        Observation::Failure(why) => why,
        other => panic!("{other:?} is no failure"),
    }
}

#[tokio::test(flavor = "local")]
async fn http_statuses() {
    let (port, _) = serve(|path| response(path[1..].parse().unwrap(), "", "body")).await;
    for status in [200, 204, 299, 301, 304, 399] {
        assert_eq!(
            get(&at(port, &format!("/{status}"))).await,
            Observation::Success,
            "{status}"
        );
    }
    for status in [400, 404, 500, 503] {
        let said = why(get(&at(port, &format!("/{status}"))).await);
        assert_eq!(said, format!("HTTP probe failed with statuscode: {status}"));
    }
}

#[tokio::test(flavor = "local")]
async fn http_requests_look_like_upstreams() {
    let (port, heads) = serve(|_| response(200, "", "")).await;
    assert_eq!(
        get(&at(port, "/healthz?full=1")).await,
        Observation::Success
    );
    let pairs = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    };
    let own = pairs(&[
        ("Host", "web.example"),
        ("User-Agent", "mine"),
        ("Accept", ""),
        ("X-A", "1"),
        ("X-A", "2"),
    ]);
    assert_eq!(
        get(&HttpAsk {
            headers: own,
            ..at(port, "/")
        })
        .await,
        Observation::Success
    );
    let heads = heads
        .lock()
        .unwrap()
        .iter()
        .map(|head| head.to_lowercase())
        .collect::<Vec<_>>();
    assert!(
        heads[0].starts_with("get /healthz?full=1 http/1.1\r\n"),
        "{}",
        heads[0]
    );
    for line in [
        "user-agent: kube-probe/1.36",
        "accept: */*",
        "connection: close",
        &format!("host: 127.0.0.1:{port}"),
    ] {
        assert!(
            heads[0].contains(&format!("{line}\r\n")),
            "{line} in {}",
            heads[0]
        );
    }
    for line in ["user-agent: mine", "host: web.example", "x-a: 1", "x-a: 2"] {
        assert!(
            heads[1].contains(&format!("{line}\r\n")),
            "{line} in {}",
            heads[1]
        );
    }
    assert!(!heads[1].contains("accept"), "{}", heads[1]);
}

#[tokio::test(flavor = "local")]
async fn http_redirects() {
    let (port, heads) = serve(|path| match path {
        "/here" => response(302, "Location: /bad\r\n", ""),
        "/bad" => response(500, "", ""),
        "/away" => response(302, "Location: http://example.invalid/\r\n", ""),
        "/nowhere" => response(302, "", ""),
        _ => response(307, "Location: /round\r\n", ""),
    })
    .await;
    assert!(why(get(&at(port, "/here")).await).contains("500"));
    assert_eq!(get(&at(port, "/away")).await, Observation::Success);
    assert_eq!(get(&at(port, "/nowhere")).await, Observation::Success);
    heads.lock().unwrap().clear();
    assert_eq!(
        why(get(&at(port, "/round")).await),
        "stopped after 10 redirects"
    );
    assert_eq!(heads.lock().unwrap().len(), 11);
}

#[tokio::test(flavor = "local")]
async fn http_servers_that_misbehave() {
    let (port, _) = serve(|path| match path {
        "/large" => response(200, "", &"x".repeat(1 << 20)),
        "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx".to_owned(),
        _ => "what?\r\n".to_owned(),
    })
    .await;
    assert_eq!(get(&at(port, "/large")).await, Observation::Success);
    assert!(why(get(&at(port, "/short")).await).starts_with("Get "));
    assert!(why(get(&at(port, "/junk")).await).starts_with("Get "));
    let bad = vec![("no colon:".to_owned(), String::new())];
    assert_eq!(
        why(get(&HttpAsk {
            headers: bad,
            ..at(port, "/")
        })
        .await),
        "header no colon: cannot be sent"
    );
}

#[tokio::test(flavor = "local")]
async fn a_refused_connection_and_a_silent_server_are_failures() {
    let (listener, port) = listen().await;
    let silent = within(
        Duration::from_millis(50),
        http::ask(&at(port, "/"), HOST, &polylet_http::Tls::default()),
    )
    .await;
    assert_eq!(why(silent), "no answer within 50ms");
    assert_eq!(net::ask(HOST, port).await, Observation::Success);
    assert_eq!(net::ask("localhost", port).await, Observation::Success);
    drop(listener);
    assert!(why(net::ask(HOST, port).await).contains("refused"));
    assert!(why(get(&at(port, "/")).await).contains("refused"));
    assert!(why(grpc::ask(HOST, port, "").await).contains("refused"));
}

#[test]
fn a_deadline_that_we_noticed_late_is_no_failure() {
    assert!(matches!(judge(SECOND, SECOND), Observation::Failure(_)));
    assert!(matches!(judge(SECOND, 2 * SECOND), Observation::Unknown(_)));
}

#[tokio::test(flavor = "local")]
async fn https_takes_any_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["else.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            answer_one(stream, &|_| response(200, "", "ok")).await;
        }
    });
    assert_eq!(
        get(&HttpAsk {
            https: true,
            ..at(port, "/")
        })
        .await,
        Observation::Success
    );
    let (listener, plain) = listen().await;
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(response(400, "", "").as_bytes()).await;
        }
    });
    let ask = HttpAsk {
        https: true,
        ..at(plain, "/")
    };
    assert!(why(get(&ask).await).contains("TLS with"));
}

#[tokio::test(flavor = "local")]
async fn grpc_health() {
    let (listener, port) = listen().await;
    let reporter = tonic_health::server::HealthReporter::new();
    reporter
        .set_service_status("up", tonic_health::ServingStatus::Serving)
        .await;
    reporter
        .set_service_status("down", tonic_health::ServingStatus::NotServing)
        .await;
    let health = tonic_health::pb::health_server::HealthServer::new(
        tonic_health::server::HealthService::from_health_reporter(reporter),
    );
    let server = tonic::transport::Server::builder()
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::task::spawn_local(async move { server.await.unwrap() });
    assert_eq!(grpc::ask(HOST, port, "up").await, Observation::Success);
    assert_eq!(
        why(grpc::ask(HOST, port, "down").await),
        "service unhealthy (responded with \"NOT_SERVING\")"
    );
    assert!(why(grpc::ask(HOST, port, "missing").await).starts_with("health rpc failed"));
}

#[tokio::test(flavor = "local")]
async fn grpc_servers_without_health() {
    let (listener, port) = listen().await;
    let server = tonic::transport::Server::builder()
        .add_routes(tonic::service::Routes::default())
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::task::spawn_local(async move { server.await.unwrap() });
    let said = why(grpc::ask(HOST, port, "").await);
    assert_eq!(
        said,
        "this server does not implement the grpc health protocol"
    );
}
