//! Polling of `staticPodURL`.

use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_model::hash::fnv1a_128;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::Span;

use super::fetch;
use crate::config::UrlConfig;
use crate::input::{FetchResult, Input, UrlResponse};
use crate::trace::new_pod_trace;

/// Timeout of a request, as in the kubelet.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Polls the URL.
pub struct UrlPoller {
    config: UrlConfig,
    /// Fingerprint of the last body sent by this process.
    sent: Option<String>,
    /// Fingerprint of the restored body, which is no change.
    restored: Option<String>,
}

impl UrlPoller {
    /// A poller; `restored` is the fingerprint of the persisted body.
    pub fn new(config: UrlConfig, restored: Option<String>) -> UrlPoller {
        UrlPoller {
            config,
            sent: None,
            restored,
        }
    }

    /// Polls until the drain.
    pub async fn run(mut self, to: mpsc::Sender<Input>, drain: CancellationToken) {
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.poll(&to) => {}
        }
    }

    async fn poll(&mut self, to: &mpsc::Sender<Input>) {
        let client = fetch::client();
        loop {
            let request = fetch::get(&client, &self.config.url, &self.config.headers);
            let body = timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| {
                let seconds = REQUEST_TIMEOUT.as_secs();
                Err(format!("does not respond within {seconds} s"))
            });
            let response = self.response(body);
            if to.send(Input::Http(response)).await.is_err() {
                return;
            }
            sleep(self.config.interval).await;
        }
    }

    fn response(&mut self, body: Result<Vec<u8>, String>) -> UrlResponse {
        let without_trace = |result| UrlResponse {
            observed_at: Timestamp::now(),
            span: Span::none(),
            result,
        };
        let bytes = match body {
            Ok(bytes) => bytes,
            Err(message) => return without_trace(Err(message)),
        };
        let fingerprint = format!("{:032x}", fnv1a_128(&bytes));
        if self.sent.as_ref() == Some(&fingerprint) {
            return without_trace(Ok(FetchResult::Unchanged));
        }
        let changed = self.restored.take().as_ref() != Some(&fingerprint);
        let url = self.config.url.clone();
        let span = if changed {
            new_pod_trace(&redact(&url))
        } else {
            Span::none()
        };
        self.sent = Some(fingerprint.clone());
        let body = FetchResult::Body {
            url,
            bytes,
            fingerprint,
        };
        UrlResponse {
            span,
            ..without_trace(Ok(body))
        }
    }
}

/// The URL without user, password, query and fragment, which may be secret.
pub fn redact(url: &str) -> String {
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
    fn secrets_are_redacted() {
        for (url, redacted) in [
            ("http://h/p", "http://h/p"),
            ("https://u:p@h:1/p?token=x#y", "https://h:1/p"),
            ("http://h", "http://h"),
            ("u:p@h", "h"),
        ] {
            assert_eq!(super::redact(url), redacted);
        }
    }
}
