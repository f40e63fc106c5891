//! What the cluster is told, as one thing beside the desk: statuses, removals and mirrors. A node
//! that stands alone has none.

use polylet_api::{Access, Connection};
use polylet_kit::Ctx;
use polylet_model::Manifest;
use polylet_watch::{Update, Value};
use polylet_wire::common::v1::Cause;
use polylet_wire::podconfig::v1 as podconfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::convert;
use crate::core::bucket::{Bucket, Moment};
use crate::core::join::Told;
use crate::core::report::want::{Holds, Says};
use crate::mirror::Making;
use crate::report::Reports;

/// Owns both rooms, and the rate that they share.
pub(crate) struct Cluster {
    begun: Instant,
    bucket: Bucket,
    reports: Reports,
    making: Making,
    busy: watch::Sender<bool>,
}

impl Cluster {
    pub(crate) fn new(ctx: &Ctx, access: Access, busy: watch::Sender<bool>) -> Self {
        let config = &ctx.config().kubelet;
        let (rate, burst) = (config.kube_api_qps, config.kube_api_burst);
        let connection = Connection::new(access);
        Self {
            begun: Instant::now(),
            bucket: Bucket::new(f64::from(rate), f64::from(burst)),
            reports: Reports::new(connection.clone()),
            making: Making::new(connection),
            busy,
        }
    }

    fn now(&self) -> Moment {
        self.begun.elapsed()
    }

    /// What is said of a pod now. With a cause, telling it is a step of the pod's start.
    pub(crate) fn told(&mut self, uid: &str, told: &Told, cause: Option<Cause>) {
        if told.unadmitted {
            return;
        }
        let manifest = &told.manifest;
        let of_api = !manifest.is_static();
        let deletable = of_api && manifest.deletion_timestamp().is_some() && told.leaving.reclaimed;
        let says = Says {
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
            status: told.status.clone(),
            may_run: !told.leaving.stopped,
            deletable,
        };
        let now = self.now();
        self.reports.say(uid, says, cause, now);
        if !of_api {
            let wanted = !told.leaving.unwanted;
            self.static_pod(uid, Some((manifest.clone(), wanted)));
        }
    }

    /// A pod is gone from here.
    pub(crate) fn gone(&mut self, uid: &str) {
        let now = self.now();
        self.reports.gone(uid, now);
        self.static_pod(uid, None);
    }

    fn static_pod(&mut self, uid: &str, pod: Option<(Manifest, bool)>) {
        let gone = pod.is_none();
        self.making.mirrors.pod(uid, pod);
        if gone {
            let now = self.now();
            self.reports.hold(uid, None, now);
        }
        self.hold_mirrors();
    }

    /// What the cluster holds of an API pod, or that it holds it no more.
    pub(crate) fn pod(&mut self, uid: &str, holds: Option<Holds>) {
        let now = self.now();
        self.reports.hold(uid, holds, now);
    }

    pub(crate) fn mirror(&mut self, update: &Update<String, podconfig::Mirror>) {
        match update {
            Update::Upsert(uid, mirror) => {
                let mirror = convert::mirror(uid, mirror);
                self.making.mirrors.mirror(uid, Some(mirror));
            }
            Update::Remove(uid) => self.making.mirrors.mirror(uid, None),
            Update::Synced => self.making.mirrors.heard(),
            // What was told is the last known, and stands.
            Update::Stale(_) => {}
        }
        self.hold_mirrors();
    }

    fn hold_mirrors(&mut self) {
        let now = self.now();
        for (uid, holds) in self.making.mirrors.holds() {
            self.reports.hold(uid, holds, now);
        }
    }

    pub(crate) fn node(&mut self, value: &Value<podconfig::WatchNodeResponse>) {
        if let Value::Current(told) = value {
            self.making.mirrors.node(convert::node(told));
        }
    }

    /// Whether everything has been heard, so that what is not known here is not there.
    pub(crate) fn whole(&mut self, whole: bool) {
        self.making.mirrors.whole(whole);
    }

    /// Waits for the end of a request, or until something is due.
    pub(crate) async fn wait(&mut self) {
        let due = [self.reports.next_due(), self.making.mirrors.next_due()];
        let due = due.into_iter().flatten().min();
        let begun = self.begun;
        let timer = async move {
            match due {
                Some(due) => sleep_until(begun + due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = self.reports.next() => {
                let now = begun.elapsed();
                self.reports.ended(ended, now);
            }
            ended = self.making.next() => {
                let now = begun.elapsed();
                self.making.ended(ended, now);
            }
            () = timer => {}
        }
    }

    /// Begins what is due.
    pub(crate) fn act(&mut self) {
        let now = self.now();
        self.reports.act(&mut self.bucket, now);
        self.making.act(&mut self.bucket, now);
        let busy = self.reports.is_busy();
        self.busy
            .send_if_modified(|told| std::mem::replace(told, busy) != busy);
    }
}
