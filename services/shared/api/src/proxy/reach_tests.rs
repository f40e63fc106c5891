//! A server of TLS behind proxies that are real, each on a port of this machine.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::{Access, Connection};

const USER: &str = "node:hunter2@";
const BASIC: &str = "Proxy-Authorization: Basic bm9kZTpodW50ZXIy\r\n";

/// A directory with an authority's certificate, and TLS with one that it signed for 127.0.0.1.
fn tls() -> (tempfile::TempDir, TlsAcceptor) {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (directory, TlsAcceptor::from(Arc::new(config)))
}

/// Serves each connection in a task, until it is dropped.
struct Serving(u16, JoinHandle<()>);

impl Serving {
    async fn with<F>(port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Serving
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        };
        Serving(port, tokio::spawn(serving))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn head<T: AsyncRead + Unpin>(stream: &mut T) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A server that answers one request a connection.
async fn server(acceptor: &TlsAcceptor) -> Serving {
    let acceptor = acceptor.clone();
    Serving::with(0, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            let asked = head(&mut stream).await?;
            assert!(
                asked.starts_with("GET /version ") && !asked.contains("Proxy"),
                "{asked}"
            );
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.write_all(answer).await?;
            stream.shutdown().await
        }
    })
    .await
}

/// What a proxy of HTTP does.
async fn tunnel<T: AsyncRead + AsyncWrite + Unpin>(mut near: T) -> std::io::Result<()> {
    let asked = head(&mut near).await?;
    let Some(server) = asked.strip_prefix("CONNECT ") else {
        return near.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    };
    if !asked.contains(BASIC) {
        let refusal = b"HTTP/1.1 407 who is hunter2\r\n\r\n";
        return near.write_all(refusal).await;
    }
    let (server, _) = server.split_once(' ').unwrap();
    let mut far = TcpStream::connect(server).await?;
    near.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

/// What a proxy of SOCKS does, for a user and an address of version 4.
async fn socks(mut near: TcpStream) -> std::io::Result<()> {
    let (_version, methods) = (near.read_u8().await?, near.read_u8().await?);
    near.read_exact(&mut vec![0; methods.into()]).await?;
    near.write_all(&[5, 2]).await?;
    let mut user = [0; 14];
    near.read_exact(&mut user).await?;
    assert_eq!(&user, b"\x01\x04node\x07hunter2");
    near.write_all(&[1, 0]).await?;
    let mut request = [0; 10];
    near.read_exact(&mut request).await?;
    let [5, 1, 0, 1, a, b, c, d, high, low] = request else {
        panic!("{request:?}");
    };
    let mut far =
        TcpStream::connect((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))).await?;
    near.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]).await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

fn connection(directory: &Path, server: u16, proxy: &str) -> Connection {
    let file = directory.join("kubeconfig");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{server}', \
         certificate-authority: ca.pem, proxy-url: '{proxy}'}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    Connection::new(Access::new(file, "test"))
}

/// The answer of the server, or all that is told of its absence.
async fn ask(connection: &Connection) -> Result<String, String> {
    let client = connection
        .client()
        .await
        .map_err(|e| polylet_kit::report(&e))?;
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    let asked = timeout(Duration::from_secs(30), client.request_text(request)).await;
    asked.unwrap().map_err(|error| polylet_kit::report(&error))
}

#[tokio::test]
async fn a_server_is_reached_through_each_kind_of_proxy() {
    let (directory, acceptor) = tls();
    let server = server(&acceptor).await;
    let plain = Serving::with(0, tunnel).await;
    let secret = Serving::with(0, move |stream| {
        let acceptor = acceptor.clone();
        async move { tunnel(acceptor.accept(stream).await?).await }
    })
    .await;
    let socks = Serving::with(0, socks).await;
    for (scheme, proxy) in [("http", &plain), ("https", &secret), ("socks5", &socks)] {
        let url = format!("{scheme}://{USER}127.0.0.1:{}", proxy.0);
        let connection = connection(directory.path(), server.0, &url);
        for _ in 0..2 {
            assert_eq!(ask(&connection).await.as_deref(), Ok("{}"), "{scheme}");
        }
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_away_is_named_without_its_user() {
    let (directory, acceptor) = tls();
    let server = server(&acceptor).await;
    let proxy = Serving::with(0, tunnel).await;
    let port = proxy.0;
    let wrong = format!("http://node:hunter3@127.0.0.1:{port}");
    let refused = ask(&connection(directory.path(), server.0, &wrong))
        .await
        .unwrap_err();
    let named = format!("the proxy http://127.0.0.1:{port}");
    let why = "proxy authorization required";
    assert!(
        refused.contains(&named) && refused.contains(why),
        "{refused}"
    );

    let right = format!("http://{USER}127.0.0.1:{port}");
    let connection = connection(directory.path(), server.0, &right);
    drop(proxy);
    tokio::task::yield_now().await;
    let away = ask(&connection).await.unwrap_err();
    assert!(away.contains(&named) && away.contains("refused"), "{away}");
    for told in [&refused, &away] {
        assert!(!told.contains("hunter"), "{told}");
    }
    let _proxy = Serving::with(port, tunnel).await;
    assert_eq!(ask(&connection).await.as_deref(), Ok("{}"));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_says_nothing_is_given_up() {
    let (directory, _) = tls();
    let silent = Serving::with(0, |stream| async move {
        let mut stream = stream;
        let _ = stream.read_to_end(&mut Vec::new()).await;
        Ok(())
    })
    .await;
    for scheme in ["http", "https", "socks5"] {
        let url = format!("{scheme}://127.0.0.1:{}", silent.0);
        let told = ask(&connection(directory.path(), 1, &url))
            .await
            .unwrap_err();
        assert!(told.contains("no tunnel within 8 s"), "{told}");
    }
    // The same of a server.
    let told = ask(&connection(directory.path(), silent.0, ""))
        .await
        .unwrap_err();
    assert!(told.contains("no connection within 12 s"), "{told}");
}

#[tokio::test]
async fn a_proxy_that_makes_no_sense_is_told_with_the_kubeconfig() {
    let (directory, _) = tls();
    for (url, why) in [
        (
            "ftp://u:hunter2@h",
            "unsupported scheme \"ftp\", must be http, https, or socks5",
        ),
        (
            "http://u:hunter2@h:port",
            "not a URL such as http://proxy:3128: its port",
        ),
    ] {
        let told = ask(&connection(directory.path(), 1, url))
            .await
            .unwrap_err();
        let place = "kubeconfig: the proxy of its server, named by its proxy-url";
        assert!(told.contains(place) && told.ends_with(why), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
