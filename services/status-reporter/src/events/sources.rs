//! What every service has to say to people.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use polylet_kit::{Ctx, follow};
use polylet_watch::Update;
use polylet_wire::notice::v1::notice_service_server::NoticeService;
use polylet_wire::notice::v1::watch_notices_response::Change;
use polylet_wire::notice::v1::{Notice, WatchNoticesRequest};
use tonic::Request;

/// All but this one.
const OTHERS: [&str; 7] = [
    "sync-coordinator",
    "eviction",
    "volume-manager",
    "image-gc",
    "prober",
    "pleg",
    "pod-config",
];

/// Every notice; some may come twice.
pub(super) fn all(ctx: &Ctx) -> SelectAll<LocalBoxStream<'static, Notice>> {
    let mut all = SelectAll::new();
    for service in OTHERS {
        let told = follow::notice::notices(ctx, service);
        let told = told.filter_map(|update| async move {
            match update {
                Update::Upsert(_, notice) => Some(notice),
                Update::Remove(_) | Update::Synced | Update::Stale(_) => None,
            }
        });
        all.push(told.boxed_local());
    }
    let notices = ctx.notices().clone();
    let own = async move {
        let asked = Request::new(WatchNoticesRequest::default());
        let told = notices.watch_notices(asked).await;
        // It never refuses itself.
        futures::stream::iter(told.ok().map(tonic::Response::into_inner)).flatten()
    };
    let own = own.flatten_stream().filter_map(|told| async move {
        match told.ok()?.change? {
            Change::Upsert(notice) => Some(notice),
            Change::Reset(_) | Change::Remove(_) | Change::Synced(_) => None,
        }
    });
    all.push(own.boxed_local());
    all
}
