//! The task that asks the URL.

use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::{CancellationToken, report};
use polylet_model::hash::fnv1a_128;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::Span;

use super::{fetch, observe};
use crate::config::HttpSettings;
use crate::run::Input;

/// As upstream.
const DEADLINE: Duration = Duration::from_secs(10);

/// What came of asking.
#[derive(Debug)]
pub struct Answer {
    /// When it came.
    pub observed_at: Timestamp,
    /// The trace of the change; disabled when there is none.
    pub span: Span,
    /// The body, or why there is none.
    pub fetched: Result<Fetched, String>,
}

/// A good answer.
#[derive(Debug)]
pub enum Fetched {
    /// The body is the one that was sent on before.
    Same,
    /// A new one.
    Body {
        /// The URL in full: part of the pods' identity.
        url: String,
        /// The body.
        bytes: Vec<u8>,
        /// Tells it from others.
        stamp: String,
    },
}

/// The source.
pub struct Http {
    settings: HttpSettings,
    /// Of the body that was sent on in this life.
    known: Option<String>,
    /// Of the kept set: no news.
    expected: Option<String>,
}

impl Http {
    /// A source that has asked nothing yet.
    pub fn new(settings: HttpSettings, expected: Option<String>) -> Http {
        Http {
            settings,
            known: None,
            expected,
        }
    }

    /// Asks until the drain.
    pub async fn run(mut self, to: mpsc::Sender<Input>, drain: CancellationToken) {
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.ask(&to) => {}
        }
    }

    async fn ask(&mut self, to: &mpsc::Sender<Input>) {
        loop {
            let asked = fetch::get(&self.settings.url, &self.settings.headers);
            let fetched = match timeout(DEADLINE, asked).await {
                Ok(Ok((200, bytes))) => Ok(bytes),
                Ok(Ok((status, _))) => {
                    Err(format!("answers with status {status}: 200 was expected"))
                }
                Ok(Err(error)) => Err(report(&error)),
                Err(_) => Err(format!("does not answer within {} s", DEADLINE.as_secs())),
            };
            let answer = self.answer(fetched);
            if to.send(Input::Http(answer)).await.is_err() {
                return;
            }
            sleep(self.settings.every).await;
        }
    }

    fn answer(&mut self, fetched: Result<Vec<u8>, String>) -> Answer {
        let observed_at = Timestamp::now();
        let bytes = match fetched {
            Ok(bytes) => bytes,
            Err(message) => {
                return Answer {
                    observed_at,
                    span: Span::none(),
                    fetched: Err(message),
                };
            }
        };
        let stamp = format!("{:032x}", fnv1a_128(&bytes));
        if self.known.as_ref() == Some(&stamp) {
            return Answer {
                observed_at,
                span: Span::none(),
                fetched: Ok(Fetched::Same),
            };
        }
        let is_news = self.expected.take().as_ref() != Some(&stamp);
        let url = self.settings.url.clone();
        let span = if is_news {
            observe(&shown(&url))
        } else {
            Span::none()
        };
        self.known = Some(stamp.clone());
        Answer {
            observed_at,
            span,
            fetched: Ok(Fetched::Body { url, bytes, stamp }),
        }
    }
}

/// The URL without user, password, query and fragment, any of which may be secret.
pub fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest
                .split_once('/')
                .map_or((rest, None), |(a, p)| (a, Some(p)));
            let host = authority.rsplit('@').next().unwrap_or_default();
            path.map_or_else(
                || format!("{scheme}://{host}"),
                |path| format!("{scheme}://{host}/{path}"),
            )
        }
        None => plain.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn secrets_are_not_shown() {
        for (url, shown) in [
            ("http://h/p", "http://h/p"),
            ("https://u:p@h:1/p?token=x#y", "https://h:1/p"),
            ("http://h", "http://h"),
            ("u:p@h", "h"),
        ] {
            assert_eq!(super::shown(url), shown);
        }
    }
}
