//! The handlers against real servers on the loopback interface.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylet_model::probe::ProbeKind;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

mod grpc_server;

use super::timeout::with_timeout;
use super::{grpc, http, tcp};
use crate::core::test_support;
use crate::core::types::{HttpGet, ProbeAttempt, ProbeOutput};

const HOST: &str = "127.0.0.1";
const SECOND: Duration = Duration::from_secs(1);

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Reads one request and responds; returns the request's head.
async fn respond(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    response: &dyn Fn(&str) -> String,
) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let _ = stream.write_all(response(path).as_bytes()).await;
    let _ = stream.shutdown().await;
    head
}

/// A server that responds to each path with `response`. Returns its port and the heads of all
/// requests.
async fn serve(
    response: impl Fn(&str) -> String + Send + 'static,
) -> (u16, Arc<Mutex<Vec<String>>>) {
    let (listener, port) = listen().await;
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let local = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let head = respond(stream, &response).await;
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

fn at(port: u16, path: &str) -> HttpGet {
    HttpGet {
        host: None,
        port,
        path: path.to_owned(),
        https: false,
        headers: Vec::new(),
    }
}

async fn get(request: &HttpGet) -> ProbeOutput {
    get_within(SECOND, request).await
}

async fn get_within(limit: Duration, request: &HttpGet) -> ProbeOutput {
    let client = polylet_http::Client::for_probes();
    let progress = polylet_http::GetProgress::default();
    let get = http::request(request, &attempt());
    let probing = http::probe(&get, &client, &progress);
    with_timeout(limit, probing, || http::timed_out(&get, &progress)).await
}

/// An attempt of a pod that has the address of these servers.
fn attempt() -> ProbeAttempt {
    ProbeAttempt {
        host: HOST.into(),
        ..test_support::attempt("c", ProbeKind::Readiness)
    }
}

async fn connect(host: &str, port: u16) -> ProbeOutput {
    tcp::probe(&polylet_http::Client::for_probes(), "pod", host, port).await
}

async fn check(port: u16, service: &str) -> ProbeOutput {
    let progress = grpc::HealthCheckProgress::default();
    let client = polylet_http::Client::for_probes();
    let probing = grpc::probe(&client, ("pod", HOST, port), service, &progress);
    with_timeout(SECOND, probing, || progress.timed_out(HOST, port, SECOND)).await
}

fn failure(output: ProbeOutput) -> String {
    match output {
        ProbeOutput::Failure(message) => message,
        other => panic!("{other:?} is not a failure"),
    }
}

/// The warning about a redirect that is not followed.
const NOT_FOLLOWED: &str = "Probe terminated redirects, Response body: ";

#[tokio::test(flavor = "local")]
async fn http_status_decides_the_result() {
    let (port, _) = serve(|path| response(path[1..].parse().unwrap(), "", "body")).await;
    let warning = ProbeOutput::Warning(format!("{NOT_FOLLOWED}body"));
    for (status, expected) in [
        (200, ProbeOutput::Success),
        (299, ProbeOutput::Success),
        (300, warning.clone()),
        (301, warning.clone()),
        (399, warning),
        (204, ProbeOutput::Success),
        (304, ProbeOutput::Warning(NOT_FOLLOWED.to_owned())),
    ] {
        let output = get(&at(port, &format!("/{status}"))).await;
        assert_eq!(output, expected, "{status}");
    }
    for status in [400, 404, 500, 503] {
        let output = failure(get(&at(port, &format!("/{status}"))).await);
        assert_eq!(
            output,
            format!("HTTP probe failed with statuscode: {status}")
        );
    }
}

#[tokio::test(flavor = "local")]
async fn http_request_has_the_headers_of_upstream() {
    let (port, heads) = serve(|_| response(200, "", "")).await;
    assert_eq!(
        get(&at(port, "/healthz?full=1")).await,
        ProbeOutput::Success
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
        get(&HttpGet {
            headers: own,
            ..at(port, "/")
        })
        .await,
        ProbeOutput::Success
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
async fn redirects_to_the_same_host_are_followed() {
    let to = |location: &str| response(302, &format!("Location: {location}\r\n"), "body");
    let (port, heads) = serve(move |path| match path {
        "/here" => to("/bad"),
        "/bad" => response(500, "", ""),
        "/named" => to("relative"),
        "/relative" => to(&format!("http://{HOST}:{OTHER}/")),
        "/elsewhere" => to("http://example.invalid/"),
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
    assert!(failure(get(&at(port, "/here")).await).contains("500"));
    let not_followed = |body| ProbeOutput::Warning(format!("{NOT_FOLLOWED}{body}"));
    assert_eq!(get(&at(port, "/elsewhere")).await, not_followed("body"));
    assert_eq!(get(&at(port, "/nowhere")).await, not_followed(""));
    assert!(failure(get(&at(port, "/broken")).await).contains("redirects to"));
    heads.lock().unwrap().clear();
    assert_eq!(
        failure(get(&at(port, "/round")).await),
        format!("Get \"http://{HOST}:{port}/round\": stopped after 10 redirects")
    );
    assert_eq!(heads.lock().unwrap().len(), 10);
    // The tenth response may redirect to another host, but not to the same one.
    assert_eq!(get(&at(port, "/0")).await, not_followed("body"));
    // A Host header is sent on to a path, and not to an address.
    heads.lock().unwrap().clear();
    let host = ("Host".to_owned(), "web.example".to_owned());
    let named = HttpGet {
        headers: vec![host],
        ..at(port, "/named")
    };
    assert!(failure(get(&named).await).contains(&format!(":{OTHER}")));
    for head in heads.lock().unwrap().iter() {
        assert!(head.to_lowercase().contains("host: web.example"), "{head}");
    }
}

/// A port without a listener.
const OTHER: u16 = 1;

#[tokio::test(flavor = "local")]
async fn large_incomplete_and_invalid_http_responses() {
    let (port, _) = serve(|path| match path {
        "/large" => response(300, "", &"x".repeat(1 << 20)),
        "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx".to_owned(),
        _ => "junk\r\n".to_owned(),
    })
    .await;
    let output = get(&at(port, "/large")).await;
    assert!(
        matches!(output, ProbeOutput::Warning(body) if body.len() == NOT_FOLLOWED.len() + (10 << 10))
    );
    // As upstream: an incomplete body is an error of the probe itself.
    let output = get(&at(port, "/short")).await;
    assert!(matches!(&output, ProbeOutput::Unknown(_)), "{output:?}");
    assert!(failure(get(&at(port, "/junk")).await).starts_with("Get "));
    let many = (0..30_000).map(|n| (format!("X-{n}"), String::new()));
    let many = HttpGet {
        headers: many.collect(),
        ..at(port, "/")
    };
    assert!(failure(get(&many).await).starts_with("request has more than 10000 headers"));
    let bad = vec![("no colon:".to_owned(), String::new())];
    assert_eq!(
        failure(
            get(&HttpGet {
                headers: bad,
                ..at(port, "/")
            })
            .await
        ),
        "header no colon: cannot be sent"
    );
}

#[tokio::test(flavor = "local")]
async fn refused_connections_and_silent_servers_fail() {
    let (listener, port) = listen().await;
    let silent = get_within(Duration::from_millis(50), &at(port, "/")).await;
    assert!(failure(silent).ends_with("(Client.Timeout exceeded while awaiting headers)"));
    let silent = failure(check(port, "").await);
    assert_eq!(silent, "timeout: health rpc did not complete within 1s");
    assert_eq!(connect(HOST, port).await, ProbeOutput::Success);
    assert_eq!(connect("localhost", port).await, ProbeOutput::Success);
    drop(listener);
    let refused = format!("dial tcp {HOST}:{port}: connect: connection refused");
    assert_eq!(failure(connect(HOST, port).await), refused);
    let url = format!("http://{HOST}:{port}/");
    assert_eq!(
        failure(get(&at(port, "/")).await),
        format!("Get {url:?}: {refused}")
    );
    let output = failure(check(port, "").await);
    assert!(
        output.starts_with("timeout: failed to connect service"),
        "{output}"
    );
}

#[tokio::test(flavor = "local")]
async fn result_is_unknown_when_the_body_is_late() {
    let (listener, port) = listen().await;
    tokio::task::spawn_local(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx";
            stream.write_all(head).await.unwrap();
            open.push(stream);
        }
    });
    let output = get_within(Duration::from_millis(50), &at(port, "/")).await;
    assert!(matches!(&output, ProbeOutput::Unknown(_)), "{output:?}");
}

#[tokio::test(flavor = "local")]
async fn https_accepts_any_certificate() {
    let certified = rcgen::generate_simple_self_signed(vec!["else.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
        certified.signing_key.serialize_der(),
    ));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            respond(stream, &|_| response(200, "", "ok")).await;
        }
    });
    assert_eq!(
        get(&HttpGet {
            https: true,
            ..at(port, "/")
        })
        .await,
        ProbeOutput::Success
    );
    let (listener, plain) = listen().await;
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(response(400, "", "").as_bytes()).await;
        }
    });
    let request = HttpGet {
        https: true,
        ..at(plain, "/")
    };
    assert!(failure(get(&request).await).contains("TLS with"));
}
