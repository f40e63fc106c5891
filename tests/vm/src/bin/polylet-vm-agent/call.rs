use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Time for a response: an emulated machine is slow.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls methods of a socket, as `/package.Service/Method`, with an empty message each, and prints the numbers of
/// the status codes as JSON.
pub(crate) fn print(socket: &str, methods: &[&str]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let codes = runtime.block_on(call_all(socket, methods))?;
    println!("{}", serde_json::to_string(&codes)?);
    Ok(())
}

async fn call_all<'a>(socket: &str, methods: &[&'a str]) -> io::Result<BTreeMap<&'a str, i32>> {
    let endpoint = Endpoint::from_shared(format!("unix:{socket}"));
    let endpoint = endpoint.map_err(io::Error::other)?.timeout(LIMIT);
    let channel = endpoint.connect().await.map_err(io::Error::other)?;
    let mut codes = BTreeMap::new();
    for method in methods {
        let code = match call(channel.clone(), method).await {
            Ok(()) => Code::Ok,
            Err(status) => status.code(),
        };
        codes.insert(*method, i32::from(code));
    }
    Ok(codes)
}

/// The message of any type is empty without its fields, and those of the response are ignored.
async fn call(channel: Channel, method: &str) -> Result<(), Status> {
    let path = PathAndQuery::try_from(method);
    let path = path.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mut client = Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<(), ()>::default();
    client.unary(Request::new(()), path, codec).await.map(drop)
}
