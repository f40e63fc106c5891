//! gRPC probes against real servers.

use tokio_stream::wrappers::TcpListenerStream;

use super::{check, failure, listen};
use crate::core::types::ProbeOutput;

#[tokio::test(flavor = "local")]
async fn grpc_health_status_decides_the_result() {
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
    assert_eq!(check(port, "up").await, ProbeOutput::Success);
    assert_eq!(
        failure(check(port, "down").await),
        "service unhealthy (responded with \"NOT_SERVING\")"
    );
    assert!(failure(check(port, "missing").await).starts_with("error: health rpc probe failed"));
}

#[tokio::test(flavor = "local")]
async fn grpc_server_without_health_service_fails() {
    let (listener, port) = listen().await;
    let server = tonic::transport::Server::builder()
        .add_routes(tonic::service::Routes::default())
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::task::spawn_local(async move { server.await.unwrap() });
    let output = failure(check(port, "").await);
    assert!(
        output.starts_with("error: this server does not implement the grpc health protocol"),
        "{output}"
    );
}
