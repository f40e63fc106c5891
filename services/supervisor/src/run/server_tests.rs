use polylet_kit::config::TraceRing;
use tokio::net::UnixStream;
use tokio::sync::mpsc::unbounded_channel;
use tonic::Code;
use tonic::transport::server::Connected;

use super::*;
use crate::backend::Backend;
use crate::backend::own::OwnHandle;

fn server(directory: &Path) -> Server {
    let own = OwnHandle::new(false, None, unbounded_channel().0);
    let programs = directory.join("programs");
    Server {
        inputs: unbounded_channel().0,
        traces: TraceStore::for_tests(&TraceRing::default()),
        node_name: "n1".to_owned(),
        upgrades: Upgrades::open(Backend::External, own, programs, directory, directory),
    }
}

#[tokio::test]
async fn programs_are_changed_for_known_callers_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    let upgrade = server.upgrade(Request::new(Default::default())).await.err();
    let rollback = server
        .rollback(Request::new(Default::default()))
        .await
        .err();
    let record = server
        .record_starts(Request::new(Default::default()))
        .await
        .err();
    for (method, status) in [
        ("Upgrade", upgrade),
        ("Rollback", rollback),
        ("RecordStarts", record),
    ] {
        let status = status.unwrap();
        assert_eq!(status.code(), Code::PermissionDenied, "{method}");
        assert!(status.message().starts_with(method), "{status:?}");
    }

    let (stream, _peer) = UnixStream::pair().unwrap();
    let mut request = Request::new(wire::UpgradeRequest::default());
    request.extensions_mut().insert(stream.connect_info());
    assert!(server.upgrade(request).await.is_ok());
}
