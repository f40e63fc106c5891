//! Notices of all services.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use polylet_kit::{Ctx, follow};
use polylet_wire::notice::v1::notice_service_server::NoticeService;
use polylet_wire::notice::v1::watch_notices_response::Change;
use polylet_wire::notice::v1::{Notice, WatchNoticesRequest};
use tonic::Request;

/// The services with notices, apart from this one.
const SERVICES: [&str; 8] = [
    "sync-coordinator",
    "eviction",
    "volume-manager",
    "image-gc",
    "prober",
    "pleg",
    "pod-config",
    "device-manager",
];

/// All notices; some may be delivered twice.
pub(super) fn all(ctx: &Ctx) -> SelectAll<LocalBoxStream<'static, Notice>> {
    let mut all = SelectAll::new();
    for service in SERVICES {
        all.push(follow::notice::notices(ctx, service).boxed_local());
    }
    let notices = ctx.notices().clone();
    let own = async move {
        let request = Request::new(WatchNoticesRequest::default());
        let updates = notices.watch_notices(request).await;
        // The local service never fails.
        futures::stream::iter(updates.ok().map(tonic::Response::into_inner)).flatten()
    };
    let own = own.flatten_stream().filter_map(|update| async move {
        match update.ok()?.change? {
            Change::Upsert(notice) => Some(notice),
            Change::Reset(_) | Change::Remove(_) | Change::Synced(_) => None,
        }
    });
    all.push(own.boxed_local());
    all
}
