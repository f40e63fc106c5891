//! Whether the API server is away, and since when: found out by the watch of pods, told to people,
//! and heeded by everything else that would ask it.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_wire::podconfig::v1::{PodSource, Problem};
use polylet_wire::time::to_wire;
use tokio::sync::watch;

use super::request::Failure;

/// What is the matter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Away {
    pub(crate) since: Timestamp,
    pub(crate) message: String,
    /// There is no use in asking for anything else; not so when only this one thing is refused.
    pub(crate) shut: bool,
}

/// Shared by all who ask.
#[derive(Clone)]
pub(crate) struct Trouble(Arc<watch::Sender<Option<Away>>>);

impl Trouble {
    pub(crate) fn new() -> Trouble {
        Trouble(Arc::new(watch::Sender::new(None)))
    }

    /// It answers.
    pub(crate) fn over(&self) {
        let was = self.0.send_replace(None);
        if let Some(away) = was {
            tracing::info!(since = %away.since, "the API server answers again");
        }
    }

    /// It does not. True when that is news.
    pub(crate) fn note(&self, failure: &Failure, now: Timestamp) -> bool {
        let shut = failure.refusal.passes();
        self.0.send_if_modified(|away| {
            let since = away.as_ref().map_or(now, |away| away.since);
            let told = away.as_ref().map(|away| (away.message.as_str(), away.shut));
            if told == Some((failure.message.as_str(), shut)) {
                return false;
            }
            tracing::warn!(%since, "the API server is away: {}", failure.message);
            *away = Some(Away {
                since,
                message: failure.message.clone(),
                shut,
            });
            true
        })
    }

    /// Since when it has been away, if it is.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.0.borrow().as_ref().map(|away| away.since)
    }

    /// What keeps it from answering, if asking is no use.
    pub(crate) fn shut(&self) -> Option<String> {
        let away = self.0.borrow();
        let away = away.as_ref().filter(|away| away.shut)?;
        Some(away.message.clone())
    }

    /// Waits until asking is of use.
    pub(crate) async fn open(&self) {
        let mut changes = self.0.subscribe();
        let open = |away: &Option<Away>| !away.as_ref().is_some_and(|away| away.shut);
        // An error would mean that the sender is gone, and it is ours.
        let _ = changes.wait_for(open).await;
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Option<Away>> {
        self.0.subscribe()
    }

    /// For people.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let away = self.0.borrow();
        let away = away.as_ref()?;
        Some(Problem {
            source: PodSource::Api.into(),
            origin: "API server".to_owned(),
            field: String::new(),
            message: format!(
                "is away since {:.0}, what it said last stands: {}",
                away.since, away.message
            ),
            since: Some(to_wire(away.since)),
        })
    }
}
