//! A TLS server behind real proxies, each on a local port.

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

use crate::{ApiConnection, ClientConfig};

const USER: &str = "node:hunter2@";
const BASIC: &str = "Proxy-Authorization: Basic bm9kZTpodW50ZXIy\r\n";

/// A directory with a CA certificate, and TLS with a certificate for 127.0.0.1 that it has signed.
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

/// A listener that serves each connection in a task until it is dropped.
struct TestServer(u16, JoinHandle<()>);

impl TestServer {
    async fn start<F>(port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static) -> TestServer
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accept_loop = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        };
        TestServer(port, tokio::spawn(accept_loop))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn read_head<T: AsyncRead + Unpin>(stream: &mut T) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A server that answers one request per connection.
async fn server(acceptor: &TlsAcceptor) -> TestServer {
    let acceptor = acceptor.clone();
    TestServer::start(0, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            let request = read_head(&mut stream).await?;
            assert!(
                request.starts_with("GET /version ") && !request.contains("Proxy"),
                "{request}"
            );
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.write_all(response).await?;
            stream.shutdown().await
        }
    })
    .await
}

/// An HTTP proxy.
async fn serve_connect<T: AsyncRead + AsyncWrite + Unpin>(mut near: T) -> std::io::Result<()> {
    let request = read_head(&mut near).await?;
    let Some(server) = request.strip_prefix("CONNECT ") else {
        return near.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    };
    if !request.contains(BASIC) {
        let rejection = b"HTTP/1.1 407 who is hunter2\r\n\r\n";
        return near.write_all(rejection).await;
    }
    let (server, _) = server.split_once(' ').unwrap();
    let mut far = TcpStream::connect(server).await?;
    near.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

/// A SOCKS proxy, for a user and an IPv4 address.
async fn serve_socks(mut near: TcpStream) -> std::io::Result<()> {
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

fn connection(directory: &Path, server: u16, proxy: &str) -> ApiConnection {
    let file = directory.join("kubeconfig");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{server}', \
         certificate-authority: ca.pem, proxy-url: '{proxy}'}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    ApiConnection::new(ClientConfig::new(file, "test"))
}

/// The response of the server, or the error with its causes.
async fn get_version(connection: &ApiConnection) -> Result<String, String> {
    let client = connection
        .client()
        .await
        .map_err(|e| polylet_kit::report(&e))?;
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    let response = timeout(Duration::from_secs(30), client.request_text(request)).await;
    response
        .unwrap()
        .map_err(|error| polylet_kit::report(&error))
}

#[tokio::test]
async fn requests_go_through_each_kind_of_proxy() {
    let (directory, acceptor) = tls();
    let server = server(&acceptor).await;
    let http = TestServer::start(0, serve_connect).await;
    let https = TestServer::start(0, move |stream| {
        let acceptor = acceptor.clone();
        async move { serve_connect(acceptor.accept(stream).await?).await }
    })
    .await;
    let socks = TestServer::start(0, serve_socks).await;
    for (scheme, proxy) in [("http", &http), ("https", &https), ("socks5", &socks)] {
        let url = format!("{scheme}://{USER}127.0.0.1:{}", proxy.0);
        let connection = connection(directory.path(), server.0, &url);
        for _ in 0..2 {
            assert_eq!(
                get_version(&connection).await.as_deref(),
                Ok("{}"),
                "{scheme}"
            );
        }
    }
}

#[tokio::test]
async fn errors_name_the_proxy_without_its_credentials() {
    let (directory, acceptor) = tls();
    let server = server(&acceptor).await;
    let proxy = TestServer::start(0, serve_connect).await;
    let port = proxy.0;
    let wrong = format!("http://node:hunter3@127.0.0.1:{port}");
    let rejected = get_version(&connection(directory.path(), server.0, &wrong))
        .await
        .unwrap_err();
    let name = format!("proxy http://127.0.0.1:{port}");
    let cause = "proxy authorization required";
    assert!(
        rejected.contains(&name) && rejected.contains(cause),
        "{rejected}"
    );

    let right = format!("http://{USER}127.0.0.1:{port}");
    let connection = connection(directory.path(), server.0, &right);
    drop(proxy);
    tokio::task::yield_now().await;
    let unavailable = get_version(&connection).await.unwrap_err();
    assert!(
        unavailable.contains(&name) && unavailable.contains("refused"),
        "{unavailable}"
    );
    for error in [&rejected, &unavailable] {
        assert!(!error.contains("hunter"), "{error}");
    }
    let _proxy = TestServer::start(port, serve_connect).await;
    assert_eq!(get_version(&connection).await.as_deref(), Ok("{}"));
}

#[tokio::test(start_paused = true)]
async fn silent_proxies_and_servers_are_given_up() {
    let (directory, _) = tls();
    let silent = TestServer::start(0, |stream| async move {
        let mut stream = stream;
        let _ = stream.read_to_end(&mut Vec::new()).await;
        Ok(())
    })
    .await;
    for scheme in ["http", "https", "socks5"] {
        let url = format!("{scheme}://127.0.0.1:{}", silent.0);
        let error = get_version(&connection(directory.path(), 1, &url))
            .await
            .unwrap_err();
        assert!(error.contains("no tunnel within 8 s"), "{error}");
    }
    let error = get_version(&connection(directory.path(), silent.0, ""))
        .await
        .unwrap_err();
    assert!(error.contains("no connection within 12 s"), "{error}");
}

#[tokio::test]
async fn errors_of_an_invalid_proxy_url_name_the_kubeconfig() {
    let (directory, _) = tls();
    for (url, cause) in [
        (
            "ftp://u:hunter2@h",
            "unsupported scheme \"ftp\", must be http, https, or socks5",
        ),
        (
            "http://u:hunter2@h:port",
            "not a URL such as http://proxy:3128: invalid port number",
        ),
    ] {
        let error = get_version(&connection(directory.path(), 1, url))
            .await
            .unwrap_err();
        assert!(error.contains("kubeconfig from proxy-url"), "{error}");
        assert!(error.ends_with(cause), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
