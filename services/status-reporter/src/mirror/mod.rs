//! Static pods' mirrors in the cluster: made, repaired and removed. Which, is decided in
//! `core/mirror`. No static pod depends on its mirror.

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use polylet_api::{Connection, Refusal};

use crate::core::bucket::{Bucket, Moment};
use crate::core::mirror::{Job, Mirrors};
use crate::report::request::{self, Failed};

type Ended = (Job, Result<(), Failed>);

/// Owns the decisions, and the requests under way.
pub(crate) struct Making {
    connection: Connection,
    pub(crate) mirrors: Mirrors,
    under_way: FuturesUnordered<LocalBoxFuture<'static, Ended>>,
}

impl Making {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            mirrors: Mirrors::default(),
            under_way: FuturesUnordered::new(),
        }
    }

    /// Begins what is due.
    pub(crate) fn act(&mut self, bucket: &mut Bucket, now: Moment) {
        for job in self.mirrors.due(bucket, now) {
            let connection = self.connection.clone();
            self.under_way.push(Box::pin(async move {
                let end = make(&connection, &job).await;
                (job, end)
            }));
        }
    }

    /// The end of a job; waits for ever while none is under way.
    pub(crate) async fn next(&mut self) -> Ended {
        match self.under_way.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Takes the end of a job in.
    pub(crate) fn ended(&mut self, (job, result): Ended, now: Moment) {
        if let Err(failed) = &result {
            tracing::warn!(
                k8s.pod.name = &*job.name,
                k8s.namespace.name = &*job.namespace,
                "a static pod's mirror is not as it should be: {}",
                polylet_kit::report(failed)
            );
        }
        self.mirrors.ended(&job, result.is_ok(), now);
    }
}

async fn make(connection: &Connection, job: &Job) -> Result<(), Failed> {
    let pods = format!("/api/v1/namespaces/{}/pods", job.namespace);
    if let Some(uid) = &job.delete {
        match request::delete(connection, format!("{pods}/{}", job.name), uid).await {
            Err(failed) if failed.refusal() != Refusal::NotFound => return Err(failed),
            _ => {}
        }
    }
    if let Some(body) = &job.create {
        match request::create(connection, pods, body).await {
            // What is there comes with the watch; it is replaced if it is not ours.
            Err(failed) if failed.refusal() == Refusal::AlreadyExists => {}
            created => created.map(drop)?,
        }
    }
    Ok(())
}
