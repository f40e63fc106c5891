//! The handlers against real servers on the loopback interface.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_stream::wrappers::TcpListenerStream;

use super::within::within;
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
    get_within(SECOND, ask).await
}

async fn get_within(limit: Duration, ask: &HttpAsk) -> Observation {
    let (tls, heard) = (polylet_http::Tls::default(), polylet_http::Heard::default());
    let get = http::request(ask, HOST);
    let asked = http::ask(&get, &tls, &heard);
    within(limit, asked, || http::late(&get, &heard)).await
}

async fn check(port: u16, service: &str) -> Observation {
    let heard = grpc::Heard::default();
    let asked = grpc::ask(HOST, port, service, &heard);
    within(SECOND, asked, || heard.late(HOST, port, SECOND)).await
}

fn why(said: Observation) -> String {
    match said {
        Observation::Failure(why) => why,
        other => panic!("{other:?} is no failure"),
    }
}

/// Part of every answer to a redirect that is not followed.
const LEFT: &str = "Probe terminated redirects, Response body: ";

#[tokio::test(flavor = "local")]
async fn http_statuses() {
    let (port, _) = serve(|path| response(path[1..].parse().unwrap(), "", "body")).await;
    let warning = Observation::Warning(format!("{LEFT}body"));
    for (status, expected) in [
        (200, Observation::Success),
        (299, Observation::Success),
        (300, warning.clone()),
        (301, warning.clone()),
        (399, warning),
        (204, Observation::Success),
        (304, Observation::Warning(LEFT.to_owned())),
    ] {
        let said = get(&at(port, &format!("/{status}"))).await;
        assert_eq!(said, expected, "{status}");
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
        ("host", "other.example"),
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
    assert!(!heads[1].contains("other.example"), "{}", heads[1]);
}

#[tokio::test(flavor = "local")]
async fn http_redirects() {
    let to = |location: &str| response(302, &format!("Location: {location}\r\n"), "left");
    let (port, heads) = serve(move |path| match path {
        "/here" => to("/bad"),
        "/bad" => response(500, "", ""),
        "/named" => to("relative"),
        "/relative" => to(&format!("http://{HOST}:{OTHER}/")),
        "/away" => to("http://example.invalid/"),
        "/nowhere" => response(302, "", ""),
        "/broken" => to(&format!("http://{HOST}:0/")),
        "/9" => to("http://example.invalid/"),
        count if count.len() == 2 => {
            let count: u32 = count[1..].parse().unwrap();
            to(&format!("/{}", count + 1))
        }
        _ => to("/round"),
    })
    .await;
    assert!(why(get(&at(port, "/here")).await).contains("500"));
    let left = |body| Observation::Warning(format!("{LEFT}{body}"));
    assert_eq!(get(&at(port, "/away")).await, left("left"));
    assert_eq!(get(&at(port, "/nowhere")).await, left(""));
    assert!(why(get(&at(port, "/broken")).await).contains("redirects to"));
    heads.lock().unwrap().clear();
    assert_eq!(
        why(get(&at(port, "/round")).await),
        format!("Get \"http://{HOST}:{port}/round\": stopped after 10 redirects")
    );
    assert_eq!(heads.lock().unwrap().len(), 10);
    // The tenth answer may lead away, but not on.
    assert_eq!(get(&at(port, "/0")).await, left("left"));
    // The name asked for goes along to a path, and not to an address.
    heads.lock().unwrap().clear();
    let host = ("Host".to_owned(), "web.example".to_owned());
    let named = HttpAsk {
        headers: vec![host],
        ..at(port, "/named")
    };
    assert!(why(get(&named).await).contains(&format!(":{OTHER}")));
    for head in heads.lock().unwrap().iter() {
        assert!(head.to_lowercase().contains("host: web.example"), "{head}");
    }
}

/// Nobody listens there.
const OTHER: u16 = 1;

#[tokio::test(flavor = "local")]
async fn http_servers_that_misbehave() {
    let (port, _) = serve(|path| match path {
        "/large" => response(300, "", &"x".repeat(1 << 20)),
        "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx".to_owned(),
        _ => "what?\r\n".to_owned(),
    })
    .await;
    let said = get(&at(port, "/large")).await;
    assert!(matches!(said, Observation::Warning(body) if body.len() == LEFT.len() + (10 << 10)));
    // As upstream: half an answer is a probe that went wrong.
    let said = get(&at(port, "/short")).await;
    assert!(matches!(&said, Observation::Unknown(_)), "{said:?}");
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
    let silent = get_within(Duration::from_millis(50), &at(port, "/")).await;
    assert!(why(silent).ends_with("(Client.Timeout exceeded while awaiting headers)"));
    let silent = why(check(port, "").await);
    assert_eq!(silent, "timeout: health rpc did not complete within 1s");
    assert_eq!(net::ask(HOST, port).await, Observation::Success);
    assert_eq!(net::ask("localhost", port).await, Observation::Success);
    drop(listener);
    let refused = format!("dial tcp {HOST}:{port}: connect: connection refused");
    assert_eq!(why(net::ask(HOST, port).await), refused);
    let url = format!("http://{HOST}:{port}/");
    assert_eq!(
        why(get(&at(port, "/")).await),
        format!("Get {url:?}: {refused}")
    );
    let said = why(check(port, "").await);
    assert!(
        said.starts_with("timeout: failed to connect service"),
        "{said}"
    );
}

#[tokio::test(flavor = "local")]
async fn a_server_that_begins_to_answer_is_not_blamed_for_its_body() {
    let (listener, port) = listen().await;
    tokio::task::spawn_local(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx";
            stream.write_all(head).await.unwrap();
            open.push(stream);
        }
    });
    let said = get_within(Duration::from_millis(50), &at(port, "/")).await;
    assert!(matches!(&said, Observation::Unknown(_)), "{said:?}");
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
    assert_eq!(check(port, "up").await, Observation::Success);
    assert_eq!(
        why(check(port, "down").await),
        "service unhealthy (responded with \"NOT_SERVING\")"
    );
    assert!(why(check(port, "missing").await).starts_with("error: health rpc probe failed"));
}

#[tokio::test(flavor = "local")]
async fn grpc_servers_without_health() {
    let (listener, port) = listen().await;
    let server = tonic::transport::Server::builder()
        .add_routes(tonic::service::Routes::default())
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::task::spawn_local(async move { server.await.unwrap() });
    let said = why(check(port, "").await);
    assert!(
        said.starts_with("error: this server does not implement the grpc health protocol"),
        "{said}"
    );
}
