//! Follows one collection, or one object, for ever: asks what [`reflector`](crate::core::cluster::reflector)
//! says and tells what comes of it.

use std::future::Future;
use std::time::Duration;

use polylet_api::kube::Client;
use polylet_api::kube::core::Status;
use polylet_api::{Backoff, Refusal, random};
use polylet_kit::report;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::line::{Line, Lines};
use super::request::{self, Event, Failure, List, Metadata};
use crate::core::cluster::kinds::encoded;
use crate::core::cluster::reflector::{Answer, Ask, Next, Reflector};

/// Between tries; a server that is back is noticed within seconds.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// Whoever waits for a first answer is told after this that there is none yet.
const LATE: Duration = Duration::from_secs(2);
/// How long a watch lasts at least, in seconds, and by how much more at most. Lost connections are
/// noticed by pings, so this is only for the server's sake.
const WATCH: (u64, u64) = (1800, 1800);
/// A watch that lasted so long has been a good one, even if nothing happened.
const LASTED: Duration = Duration::from_secs(8);
/// Watches are begun anew over so long when credentials were renewed.
const SPREAD: Duration = Duration::from_secs(5);

/// What is followed.
pub(crate) struct Followed {
    /// The path of the collection.
    pub(crate) path: String,
    /// The field that selects, and its value; nothing for all.
    pub(crate) by: Option<(&'static str, String)>,
    /// The one object's name.
    pub(crate) name: Option<String>,
}

/// Where what is heard goes.
pub(crate) trait Ear {
    /// All that there is, one after the other: what is not among it is gone. Where each is much
    /// work, others get their turn in between.
    fn whole(
        &mut self,
        all: &mut (dyn Iterator<Item = Value> + Send),
    ) -> impl Future<Output = ()> + Send;
    /// One has come, or has changed.
    fn changed(&mut self, object: Value);
    /// One is gone.
    fn gone(&mut self, object: Value);
    /// A watch has begun.
    fn watching(&mut self) {}
    /// A request has failed.
    fn failed(&mut self, failure: &Failure);
    /// There is no first answer yet, and that for long.
    fn late(&mut self);
    /// Nothing more needs to be heard of it.
    fn enough(&self) -> bool {
        false
    }
    /// Nothing is asked before this.
    fn asks_first(&self) -> bool {
        false
    }
}

/// Follows until the ear has heard enough.
pub(crate) async fn follow(lines: &Lines, followed: &Followed, ear: &mut impl Ear) {
    let mut following = Following {
        line: lines.line(),
        lines,
        followed,
        reflector: Reflector::new(followed.name.is_some()),
        backoff: Backoff::new(SHORTEST, LONGEST),
        answered: false,
    };
    while !ear.enough() {
        match following.step(ear).await {
            Next::Now => {}
            Next::Later(asked) => {
                following.backoff.failed(asked);
                following.pause().await;
            }
        }
    }
}

struct Following<'a> {
    line: Line,
    lines: &'a Lines,
    followed: &'a Followed,
    reflector: Reflector,
    backoff: Backoff,
    answered: bool,
}

impl Following<'_> {
    async fn step(&mut self, ear: &mut impl Ear) -> Next {
        if !ear.asks_first()
            && let Some(message) = self.lines.trouble.shut()
        {
            ear.failed(&Failure::unreachable(message));
            self.lines.trouble.open().await;
            // Everybody waits for this moment.
            sleep(SHORTEST.mul_f64(random() * 10.0)).await;
        }
        let client = match self.line.connection.client().await {
            Ok(client) => client,
            Err(error) => {
                ear.failed(&Failure::unreachable(report(&error)));
                self.line.connection.ready().await
            }
        };
        match self.reflector.ask() {
            Ask::Watch { from } => self.watch(&client, &from, ear).await,
            once => self.once(&client, once == Ask::Get, ear).await,
        }
    }

    /// Waits as long as the last failure asks for, or until there are other credentials.
    async fn pause(&mut self) {
        let credentials = &mut self.line.credentials;
        tokio::select! {
            () = self.backoff.wait() => {}
            _ = credentials.changed() => {}
        }
    }

    async fn once(&mut self, client: &Client, one: bool, ear: &mut impl Ear) -> Next {
        let path = match &self.followed.name {
            Some(name) if one => format!("{}/{}", self.followed.path, encoded(name)),
            _ => format!("{}{}", self.followed.path, self.query(None)),
        };
        let asking = async {
            let _turn = self.line.turn().await;
            request::get(client, &path).await
        };
        let got = {
            let mut asking = std::pin::pin!(asking);
            if self.answered {
                asking.await
            } else {
                match timeout(LATE, &mut asking).await {
                    Ok(got) => got,
                    Err(_) => {
                        ear.late();
                        asking.await
                    }
                }
            }
        };
        let got = match got {
            Ok(bytes) => heard_once(bytes, one, ear).await,
            Err(failure) => Err(failure),
        };
        match got {
            Ok(version) => {
                self.answered = true;
                self.reflector.learn(if one {
                    Answer::Got(Some(version))
                } else {
                    Answer::Listed(version)
                })
            }
            Err(failure) if one && failure.refusal == Refusal::NotFound && !failure.unserved => {
                self.answered = true;
                ear.whole(&mut std::iter::empty()).await;
                self.reflector.learn(Answer::Got(None))
            }
            Err(failure) => self.fail(ear, &failure),
        }
    }

    async fn watch(&mut self, client: &Client, from: &str, ear: &mut impl Ear) -> Next {
        let path = format!("{}{}", self.followed.path, self.query(Some(from)));
        self.line.credentials.borrow_and_update();
        let mut lines = match request::watch(client, &path).await {
            Ok(lines) => lines,
            Err(failure) => return self.fail(ear, &failure),
        };
        ear.watching();
        let begun = Instant::now();
        let next = self.hear(&mut lines, ear).await;
        if begun.elapsed() >= LASTED {
            self.backoff.succeeded();
        }
        next
    }

    /// Tells the lines of a watch, to its end.
    async fn hear(&mut self, lines: &mut request::WatchLines, ear: &mut impl Ear) -> Next {
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                _ = self.line.credentials.changed() => {
                    sleep(SPREAD.mul_f64(random())).await;
                    // It is we who end it: the next one begins at once.
                    self.reflector.learn(Answer::Heard(String::new()));
                    return self.reflector.learn(Answer::Ended);
                }
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return self.reflector.learn(Answer::Ended),
                Err(failure) => return self.fail(ear, &failure),
            };
            match heard(&line, ear) {
                Ok(Some(version)) => {
                    self.backoff.succeeded();
                    self.reflector.learn(Answer::Heard(version));
                    if ear.enough() {
                        return Next::Now;
                    }
                }
                Ok(None) => {}
                Err(failure) => return self.fail(ear, &failure),
            }
        }
    }

    fn fail(&mut self, ear: &mut impl Ear, failure: &Failure) -> Next {
        if failure.refusal == Refusal::Unauthorized {
            self.line.connection.refused();
        }
        // That a version is too old is nobody's trouble.
        if failure.refusal != Refusal::Gone {
            ear.failed(failure);
        }
        self.reflector.learn(Answer::Failed(failure.refusal))
    }

    fn query(&self, from: Option<&str>) -> String {
        let mut parts = Vec::new();
        if let Some((field, value)) = &self.followed.by {
            parts.push(format!("fieldSelector={field}%3D{}", encoded(value)));
        }
        if let Some(from) = from {
            let seconds = WATCH.0 + (WATCH.1 as f64 * random()) as u64;
            parts.push(format!(
                "watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
                encoded(from)
            ));
        }
        if parts.is_empty() {
            String::new()
        } else {
            format!("?{}", parts.join("&"))
        }
    }
}

/// Tells an answer; its version.
async fn heard_once(bytes: Vec<u8>, one: bool, ear: &mut impl Ear) -> Result<String, Failure> {
    #[derive(serde::Deserialize)]
    struct One {
        metadata: Metadata,
    }
    if one {
        let of: One = request::read(&bytes)?;
        let object: Value = request::read(&bytes)?;
        ear.whole(&mut std::iter::once(object)).await;
        return Ok(of.metadata.resource_version);
    }
    let list = List::read(bytes).await?;
    ear.whole(&mut list.items()).await;
    Ok(list.version)
}

/// Tells one line of a watch; its version.
fn heard(line: &[u8], ear: &mut impl Ear) -> Result<Option<String>, Failure> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let event: Event<'_> = request::read(line)?;
    if event.kind == "ERROR" {
        return Err(Failure::of_status(request::item::<Status>(event.object)?));
    }
    let object: Value = request::item(event.object)?;
    let version = object.pointer("/metadata/resourceVersion");
    let version = version
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    match event.kind {
        "ADDED" | "MODIFIED" => ear.changed(object),
        "DELETED" => ear.gone(object),
        // A bookmark, or what a newer server says beside it.
        _ => {}
    }
    Ok(Some(version))
}
