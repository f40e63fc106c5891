use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn get(target: GetTarget) -> Get {
    Get {
        target,
        headers: vec![("X-Secret".to_owned(), "1".to_owned())],
        user_agent: "",
        requester: String::new(),
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Responds to the next connection and returns the request.
async fn respond(listener: &TcpListener, response: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap();
    let _ = stream.write_all(response.as_bytes()).await;
    String::from_utf8_lossy(&request[..length]).to_lowercase()
}

fn redirect(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";

#[tokio::test]
async fn plain_http_is_distinguished_from_broken_tls() {
    let (listener, port) = listen().await;
    let request = get(GetTarget::new(true, "127.0.0.1", port, "/"));
    for (response, plain) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", true),
        ("HELLO THERE\r\n", false),
    ] {
        let client = Client::for_probes();
        let (status, _) = tokio::join!(client.get_status(&request), respond(&listener, response));
        assert_eq!(status.unwrap_err().is_plain_http(), plain, "{response}");
    }
}

#[tokio::test]
async fn sources_follow_redirects_and_keep_their_headers_to_themselves() {
    let (listener, port) = listen().await;
    let url = format!("http://user@127.0.0.1:{port}/a");
    let request = get(GetTarget::parse(&url).unwrap());
    let serve = async {
        let first = respond(&listener, &redirect("b")).await;
        let second = respond(&listener, &redirect(&format!("http://localhost:{port}/c"))).await;
        (first, second, respond(&listener, OK).await)
    };
    let (client, progress) = (Client::for_sources(4), GetProgress::default());
    let (response, (first, second, third)) = tokio::join!(client.get(&request, &progress), serve);
    let response = response.unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &b"body"[..]));
    assert!(first.starts_with("get /a ") && first.contains(&format!("host: 127.0.0.1:{port}\r")));
    assert!(first.contains("authorization: basic dxnlcjo="), "{first}");
    assert!(second.starts_with("get /b ") && second.contains("x-secret: 1"));
    assert!(third.starts_with("get /c ") && third.contains(&format!("host: localhost:{port}\r")));
    assert!(!third.contains("x-secret") && !third.contains("authorization"));
}

#[tokio::test]
async fn bodies_are_bounded() {
    let (listener, port) = listen().await;
    let request = get(GetTarget::new(false, "127.0.0.1", port, "/"));
    let progress = GetProgress::default();
    let strict = Client::for_sources(3);
    let (response, _) = tokio::join!(strict.get(&request, &progress), respond(&listener, OK));
    let error = response.unwrap_err();
    assert!(matches!(
        error.http_error(),
        Some(HttpError::BodyTooLarge { limit: 3, .. })
    ));
    let mut lenient = Client::for_probes();
    lenient.max_body = 3;
    let (response, _) = tokio::join!(lenient.get(&request, &progress), respond(&listener, OK));
    assert_eq!(response.unwrap().body, b"bod");
}

#[tokio::test]
async fn probes_do_not_follow_redirects_to_other_hosts() {
    let (listener, port) = listen().await;
    let request = get(GetTarget::new(false, "127.0.0.1", port, "/"));
    let client = Client::for_probes();
    let away = redirect("http://localhost/");
    let (status, _) = tokio::join!(client.get_status(&request), respond(&listener, &away));
    assert_eq!(status.unwrap(), 302);
    let endless = async {
        for _ in 0..MAX_REQUESTS {
            respond(&listener, &redirect("/")).await;
        }
    };
    let (status, ()) = tokio::join!(client.get_status(&request), endless);
    let error = status.unwrap_err();
    assert!(
        matches!(error, GetError::TooManyRedirects { .. }),
        "{error}"
    );
    let invalid = redirect(&format!("http://127.0.0.1:{port}x/"));
    let (status, _) = tokio::join!(client.get_status(&request), respond(&listener, &invalid));
    assert!(matches!(status, Err(GetError::Redirect { .. })));
}

#[tokio::test]
async fn headers_of_a_response_are_bounded() {
    let (listener, port) = listen().await;
    let request = get(GetTarget::new(false, "127.0.0.1", port, "/"));
    let client = Client::for_probes();
    for (count, accepted) in [(500, true), (30_000, false)] {
        let headers: String = (0..count).map(|n| format!("X{n}:\r\n")).collect();
        let response = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n");
        let (status, _) = tokio::join!(client.get_status(&request), respond(&listener, &response));
        assert_eq!(status.is_ok(), accepted, "{count}: {status:?}");
    }
}

#[tokio::test]
async fn requests_with_too_many_headers_are_an_error() {
    let mut request = get(GetTarget::new(false, "127.0.0.1", 1, "/"));
    request.headers = (0..30_000)
        .map(|n| (format!("X-{n}"), String::new()))
        .collect();
    let error = Client::for_probes().get_status(&request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "request has more than 10000 headers, or more than 1048576 bytes of them"
    );
}
