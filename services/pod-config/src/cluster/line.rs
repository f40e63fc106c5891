//! Connections to the API server, shared by all who follow something there.
//!
//! An HTTP/2 connection carries so many requests at once (250 by the server's default), and every
//! watch is one that does not end: each connection takes its share of watches, and one more is
//! opened when all are full.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_api::{Access, Connection, Refusal};
use polylet_kit::report;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::request::{self, Failure};
use super::trouble::Trouble;

/// Watches on one connection.
const WATCHES: usize = 100;
/// Requests under way that end: there may be as many pods that begin.
const REQUESTS: usize = 64;

/// How long it may take the server to know what concerns us.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);

/// How the server is asked.
#[derive(Clone)]
pub(crate) struct Lines {
    access: Access,
    all: Arc<Mutex<Vec<Shared>>>,
    requests: Arc<Semaphore>,
    /// Counts the credentials of this life.
    credentials: Arc<watch::Sender<u64>>,
    pub(crate) trouble: Trouble,
}

/// A connection and its places.
type Shared = (Connection, Arc<Semaphore>);

/// A place for one watch.
pub(crate) struct Line {
    pub(crate) connection: Connection,
    pub(crate) credentials: watch::Receiver<u64>,
    requests: Arc<Semaphore>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Lines {
    pub(crate) fn new(access: Access) -> Lines {
        let lines = Lines {
            access,
            all: Arc::default(),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            credentials: Arc::new(watch::Sender::new(0)),
            trouble: Trouble::new(),
        };
        drop(lines.line());
        lines
    }

    /// A place on a connection that has room.
    pub(crate) fn line(&self) -> Line {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find_map(|(connection, places)| {
            let place = places.clone().try_acquire_owned().ok()?;
            Some((connection.clone(), Some(place)))
        });
        let (connection, place) = found.unwrap_or_else(|| {
            let (connection, places) = (
                Connection::new(self.access.clone()),
                Arc::new(Semaphore::new(WATCHES)),
            );
            all.push((connection.clone(), places.clone()));
            (connection, places.try_acquire_owned().ok())
        });
        Line {
            connection,
            credentials: self.credentials.subscribe(),
            requests: self.requests.clone(),
            _place: place,
        }
    }

    /// Told when the credentials have been renewed.
    pub(crate) fn credentials(&self) -> watch::Receiver<u64> {
        self.credentials.subscribe()
    }

    /// The first connection, for requests that end.
    pub(crate) fn first(&self) -> Option<Connection> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.first().map(|(connection, _)| connection.clone())
    }

    /// Waits until another request may be under way.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().acquire_owned().await.ok()
    }

    /// The whole answer to a GET, or to a POST of a body, in its turn.
    pub(crate) async fn ask(&self, path: &str, body: Option<&str>) -> Result<Vec<u8>, Failure> {
        let Some(connection) = self.first() else {
            return Err(Failure::unreachable("there is no connection"));
        };
        let client = connection.client().await;
        let client = client.map_err(|error| Failure::unreachable(report(&error)))?;
        let _turn = self.turn().await;
        let answer = match body {
            Some(body) => request::post(&client, path, body.to_owned()).await,
            None => request::get(&client, path).await,
        };
        if matches!(&answer, Err(failure) if failure.refusal == Refusal::Unauthorized) {
            connection.refused();
        }
        answer
    }

    /// The same until it is not forbidden, for a while: right after a pod was bound, the server does
    /// not know yet that what belongs to it concerns us.
    pub(crate) async fn patiently(
        &self,
        path: &str,
        body: Option<&str>,
    ) -> Result<Vec<u8>, Failure> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            match self.ask(path, body).await {
                Err(failure)
                    if failure.refusal == Refusal::Forbidden && begun.elapsed() < UNKNOWN_FOR =>
                {
                    sleep(pause).await;
                    pause *= 2;
                }
                told => return told,
            }
        }
    }

    /// Tells all watches when the credentials have been renewed.
    pub(crate) async fn renew(self) {
        let Some(first) = self.first() else {
            return std::future::pending().await;
        };
        loop {
            first.renewed().await;
            let client = first.ready().await;
            drop(client);
            self.credentials.send_modify(|count| *count += 1);
        }
    }
}

impl Line {
    /// Waits until another request may be under way.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().acquire_owned().await.ok()
    }
}
