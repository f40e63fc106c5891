//! The part of CSI's controller service that a test needs: creation and deletion of volumes.

use std::path::Path;

use polylet_wire::csi::v1::{CapacityRange, VolumeCapability};
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    capabilities: Vec<VolumeCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Volume {
    #[prost(string, tag = "2")]
    id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    volume: Option<Volume>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteVolumeResponse {}

/// Creates a volume and returns its handle.
pub(crate) async fn create(socket: &Path, name: &str, capability: VolumeCapability) -> String {
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        range: Some(CapacityRange {
            required_bytes: 8 << 20,
            limit_bytes: 0,
        }),
        capabilities: vec![capability],
    };
    let path = "/csi.v1.Controller/CreateVolume";
    let made: CreateVolumeResponse = call(socket, path, request).await;
    made.volume.unwrap_or_default().id
}

/// Deletes a volume.
pub(crate) async fn delete(socket: &Path, handle: &str) {
    let id = handle.to_owned();
    let path = "/csi.v1.Controller/DeleteVolume";
    let DeleteVolumeResponse {} = call(socket, path, DeleteVolumeRequest { id }).await;
}

async fn call<Q, A>(socket: &Path, path: &'static str, request: Q) -> A
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let endpoint = format!("unix://{}", socket.display());
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let path = PathAndQuery::from_static(path);
    let request = tonic::Request::new(request);
    client
        .unary(request, path, codec)
        .await
        .unwrap()
        .into_inner()
}
