use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::tls::test_support::TestAuthority;

/// Writes a file as upstream's tools do, who replace it.
fn replace(path: &std::path::Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn handshakes_use_the_configured_versions_and_suites() {
    let test = async {
        let settings = |min_version: &str, suite: &str| TlsSettings {
            min_version: min_version.to_owned(),
            cipher_suites: vec![suite.to_owned()],
            curves: vec![23],
        };
        let chacha = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
        for (min_version, suite, version, expected) in [
            ("VersionTLS13", chacha, &TLS13, true),
            ("VersionTLS13", chacha, &TLS12, false),
            ("", chacha, &TLS12, true),
            // The certificate's key is of another kind.
            ("", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", &TLS12, false),
            ("", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", &TLS13, true),
        ] {
            let limits = ServerLimits::default();
            let server = TestServer::start_with(limits, settings(min_version, suite), None).await;
            let connector = server.connector(&[version]);
            let stream = TcpStream::connect(server.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let connect = timeout(PATIENCE, connector.connect(name, stream));
            let connected = connect.await.expect("an answer in time");
            assert_eq!(
                connected.is_ok(),
                expected,
                "{min_version} {suite} {version:?}"
            );
            if let Ok(client) = connected {
                let group = client.get_ref().1.negotiated_key_exchange_group().unwrap();
                assert_eq!(group.name(), rustls::NamedGroup::secp256r1);
            }
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn client_certificate_is_verified_for_each_request() {
    let test = async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        let [authority, other] = [(); 2].map(|()| TestAuthority::new("ca"));
        replace(&path, &authority.pem());
        let limits = ServerLimits::default();
        let settings = TlsSettings::default();
        let server = TestServer::start_with(limits, settings, Some(path.clone())).await;
        let (certificate, key) = authority.issue("someone", 2020..2100);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .unwrap()
            .with_root_certificates(server.roots.clone())
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        let stream = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connect = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let mut client = timeout(PATIENCE, connect).await.unwrap().unwrap();
        for (bundle, expected) in [
            (authority.pem(), "user someone"),
            (other.pem(), "no user"),
            (other.pem() + &authority.pem(), "user someone"),
            // What cannot be read is no other bundle.
            (String::new(), "user someone"),
        ] {
            replace(&path, &bundle);
            let sent = client.write_all(request("/user").as_bytes()).await;
            sent.unwrap();
            until(&mut client, expected).await;
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn sessions_are_not_resumed() {
    let test = async {
        let server = TestServer::start(ServerLimits::default()).await;
        for version in [&TLS12, &TLS13] {
            let connector = server.connector(&[version]);
            for _ in 0..2 {
                let stream = TcpStream::connect(server.address).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                let connect = timeout(PATIENCE, connector.connect(name, stream));
                let mut client = connect.await.unwrap().unwrap();
                let text = request("/healthz");
                client.write_all(text.as_bytes()).await.unwrap();
                // Tickets would come before the response.
                until(&mut client, "ok").await;
                let kind = client.get_ref().1.handshake_kind();
                assert_eq!(kind, Some(HandshakeKind::Full), "{version:?}");
            }
        }
    };
    LocalSet::new().run_until(test).await;
}
