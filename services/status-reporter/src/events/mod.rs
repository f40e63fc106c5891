//! Events: what services have to say to people, told to the cluster. Best effort, as events are:
//! nothing waits for them, and when the API server is away too long they are dropped. How they are
//! counted, put together and held back, and when they are told, is decided in `core/events`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use polylet_api::{Access, Connection, Refusal};
use polylet_kit::Ctx;
use polylet_wire::notice::v1::{Notice, Severity};
use polylet_wire::time;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::core::bucket::{Bucket, Moment};
use crate::core::events::{About, Correlator, Telling, Word, leisure};
use crate::keep::Keeper;
use crate::report::request::{self, Failed};

mod sources;

/// As many wait to be told; what comes then is dropped, as upstream does.
const QUEUE: usize = 1000;
/// An event is tried so often, so long apart.
const TRIES: u32 = 12;
const APART: Duration = Duration::from_secs(10);

/// How far each service was heard: its life, and its last word in it.
type Heard = BTreeMap<String, (String, u64)>;

/// Starts telling, on a node of a cluster. `busy` says whether statuses are on their way.
pub(crate) fn start(ctx: &Ctx, busy: watch::Receiver<bool>) {
    if let Some(access) = Access::of(ctx.config(), crate::MANIFEST.service) {
        ctx.spawn("events", Task::new(ctx, access, busy).run());
    }
}

/// A word that is not told yet.
struct Waiting {
    word: Word,
    heard: Moment,
    /// Whose it is, in which life of it, as its how manieth.
    place: (String, String, u64),
}

struct Task {
    ctx: Ctx,
    begun: Instant,
    node: String,
    correlator: Correlator,
    bucket: Bucket,
    busy: watch::Receiver<bool>,
    queue: VecDeque<Waiting>,
    connection: Connection,
    under_way: Option<LocalBoxFuture<'static, ()>>,
    /// What was taken in, and what of it was told: that is kept, and the rest heard again by the
    /// next life.
    heard: Heard,
    told: Heard,
    keeper: Keeper<Heard>,
    dropped: u64,
}

impl Task {
    fn new(ctx: &Ctx, access: Access, busy: watch::Receiver<bool>) -> Self {
        let (keeper, told) = Keeper::<Heard>::open(ctx.run_dir().join("notices.json"));
        let config = &ctx.config().kubelet;
        Self {
            begun: Instant::now(),
            node: ctx.node_name().to_owned(),
            correlator: Correlator::new(ctx.node_name()),
            bucket: Bucket::new(
                f64::from(config.event_record_qps),
                f64::from(config.event_burst),
            ),
            busy,
            queue: VecDeque::new(),
            connection: Connection::new(access),
            under_way: None,
            heard: told.clone(),
            told,
            keeper,
            dropped: 0,
            ctx: ctx.clone(),
        }
    }

    async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut notices = sources::all(&self.ctx);
        loop {
            let free_at = self.begin().map(|at| self.begun + at);
            tokio::select! {
                () = drain.cancelled() => break,
                Some(notice) = notices.next() => {
                    let mut told = vec![notice];
                    while let Some(Some(notice)) = notices.next().now_or_never() {
                        told.push(notice);
                    }
                    self.hear(told);
                }
                () = finished(&mut self.under_way) => self.under_way = None,
                () = until(free_at) => {}
                Ok(()) = self.busy.changed() => {}
                () = self.keeper.wait() => {}
            }
            self.keeper.write_if_due(|| self.told.clone());
        }
        self.keeper.finish(self.told).await;
    }

    /// Takes notices in, in the order in which each service gave them.
    fn hear(&mut self, notices: Vec<Notice>) {
        let mut numbered: Vec<_> = notices
            .iter()
            .filter_map(|notice| Some((place(notice)?, notice)))
            .collect();
        numbered.sort_by_key(|(place, _)| *place);
        for ((service, life, number), notice) in numbered {
            let known = self.heard.get(service);
            if known.is_some_and(|(of, last)| of == life && *last >= number) {
                continue;
            }
            let place = (life.to_owned(), number);
            self.heard.insert(service.to_owned(), place);
            if self.queue.len() >= QUEUE {
                self.dropped += 1;
                if self.dropped.is_power_of_two() {
                    tracing::warn!(dropped = self.dropped, "more events than can be told");
                }
                continue;
            }
            self.queue.push_back(Waiting {
                word: self.word(notice),
                heard: self.begun.elapsed(),
                place: (service.to_owned(), life.to_owned(), number),
            });
        }
    }

    fn word(&self, notice: &Notice) -> Word {
        let about = match (&notice.pod, &notice.object) {
            (Some(pod), _) => About {
                kind: "Pod".to_owned(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            },
            (None, Some(object)) => About {
                kind: object.kind.clone(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                uid: object.uid.clone(),
            },
            // Upstream names the node for its uid too, and readers look for that.
            (None, None) => About {
                kind: "Node".to_owned(),
                namespace: String::new(),
                name: self.node.clone(),
                uid: self.node.clone(),
            },
        };
        Word {
            id: notice.id.clone(),
            about,
            part: notice.field_path.clone(),
            warning: notice.severity() == Severity::Warning,
            reason: notice.reason.clone(),
            message: notice.message.clone(),
            at: time::from_wire_opt(notice.at.as_ref()).unwrap_or_default(),
        }
    }

    /// Begins to tell the next one; when it is not time for it, tells until when.
    fn begin(&mut self) -> Option<Moment> {
        while self.under_way.is_none() {
            let now = self.begun.elapsed();
            let warned = self.queue.iter().any(|waiting| waiting.word.warning);
            let busy = *self.busy.borrow_and_update();
            let due = leisure::due(self.queue.front()?.heard, warned, busy);
            if due > now {
                return Some(due);
            }
            if let Err(at) = self.bucket.take(now) {
                return Some(at);
            }
            let Waiting { word, place, .. } = self.queue.pop_front()?;
            let (service, life, number) = place;
            self.told.insert(service, (life, number));
            self.keeper.changed();
            if let Some(telling) = self.correlator.judge(&word, now) {
                let connection = self.connection.clone();
                let work = async move { tell(&connection, &telling).await };
                self.under_way = Some(work.boxed_local());
            }
        }
        None
    }
}

/// Which service gave a notice, in which of its lives, and as its how manieth.
fn place(notice: &Notice) -> Option<(&str, &str, u64)> {
    let (of, number) = notice.id.rsplit_once('-')?;
    let (service, life) = of.rsplit_once('-')?;
    Some((service, life, number.parse().ok()?))
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn finished(work: &mut Option<LocalBoxFuture<'static, ()>>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// Tells an event, or gives it up.
async fn tell(connection: &Connection, telling: &Telling) {
    for _ in 0..TRIES {
        let Err(failed) = attempt(connection, telling).await else {
            return;
        };
        let why = polylet_kit::report(&failed);
        if !failed.refusal().passes() {
            // A namespace that is going takes no events.
            return tracing::debug!(event = telling.name, "an event is not taken: {why}");
        }
        tracing::debug!(event = telling.name, "an event is told later: {why}");
        sleep(APART).await;
    }
    tracing::warn!(
        event = telling.name,
        "an event is dropped: the API server is away"
    );
}

async fn attempt(connection: &Connection, telling: &Telling) -> Result<(), Failed> {
    let events = format!("/api/v1/namespaces/{}/events", telling.namespace);
    if let Some(patch) = &telling.patch {
        let path = format!("{events}/{}", telling.name);
        match request::patch(connection, path, patch).await {
            // It has outlived its time there: told anew.
            Err(failed) if failed.refusal() == Refusal::NotFound => {}
            told => return told.map(drop),
        }
    }
    match request::create(connection, events, &telling.event).await {
        // Told in an earlier life of the process.
        Err(failed) if failed.refusal() == Refusal::AlreadyExists => Ok(()),
        told => told.map(drop),
    }
}
