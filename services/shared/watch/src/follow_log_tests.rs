use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
use polylet_wire::notice::v1::notice_service_server::{NoticeService, NoticeServiceServer};
use polylet_wire::notice::v1::{Notice, WatchNoticesRequest, WatchNoticesResponse};
use tokio::time::timeout;
use tonic::Request;
use tonic::service::Routes;

use super::*;
use crate::AppendLog;
use crate::over_sockets::{RecordingObserver, ServerProcess, channel};

struct TestServer(AppendLog<Notice>);

#[tonic::async_trait]
impl NoticeService for TestServer {
    type WatchNoticesStream = BoxStream<'static, Result<WatchNoticesResponse, Status>>;

    async fn watch_notices(
        &self,
        request: Request<WatchNoticesRequest>,
    ) -> Result<Response<Self::WatchNoticesStream>, Status> {
        let changes = self.0.serve(request.into_inner().resume_after);
        let messages = changes.map(|change| {
            let change = change.map(|(_, notice)| notice);
            let change = change.map_key(|number| number.to_string());
            Ok(WatchNoticesResponse::from_change(change))
        });
        Ok(Response::new(messages.boxed()))
    }
}

fn serve(log: &AppendLog<Notice>, at: Option<std::net::SocketAddr>) -> ServerProcess {
    let service = NoticeServiceServer::new(TestServer(log.clone()));
    ServerProcess::of(Routes::new(service), at)
}

fn notice(id: &str) -> Notice {
    Notice {
        id: id.to_owned(),
        ..Notice::default()
    }
}

#[tokio::test]
async fn messages_come_in_order_across_a_restart_of_the_server() {
    const SEVERITY: &str = "polylet.notice.v1.Notice.severity";
    let first = AppendLog::new("first");
    first.push(&notice("a"));
    first.push(&notice("b"));
    first.remove_oldest(1);
    let server = serve(&first, None);
    let address = server.address;
    let observer = RecordingObserver::default();
    let mut notices = follow_log(observer.clone(), |resume_after| async move {
        NoticeServiceClient::new(channel(address))
            .watch_notices(WatchNoticesRequest { resume_after })
            .await
    });
    let mut next = async || {
        let next = timeout(Duration::from_secs(20), notices.next()).await;
        next.expect("a notice in time").unwrap()
    };
    assert_eq!(next().await, notice("b"));
    first.push(&notice("c"));
    first.push(&Notice {
        severity: 77,
        ..notice("of a newer server")
    });
    first.push(&notice("d"));
    first.remove_oldest(1);
    assert_eq!(next().await, notice("c"));
    assert_eq!(next().await, notice("d"), "what is not known is left out");

    // The same server is found again: only what is new is sent.
    drop(server);
    first.push(&notice("e"));
    let server = serve(&first, Some(address));
    assert_eq!(next().await, notice("e"));

    drop(server);
    let second = AppendLog::new("second");
    second.push(&notice("f"));
    let _server = serve(&second, Some(address));
    assert_eq!(next().await, notice("f"));
    let told = observer.0.lock().unwrap().clone();
    for expected in [
        "first true".to_owned(),
        format!("unknown {:?}", Some(SEVERITY)),
        "unknown None".to_owned(),
        "lost WatchNotices".to_owned(),
    ] {
        assert!(told.contains(&expected), "{expected}: {told:?}");
    }
}
