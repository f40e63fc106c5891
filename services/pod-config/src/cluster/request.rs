//! One request to the API server: its answer, or why there is none.
//!
//! Nothing of a body gets into a log or an error: it may be a Secret.

use std::ops::Range;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use polylet_api::Refusal;
use polylet_api::kube::client::Body;
use polylet_api::kube::core::Status;
use polylet_api::kube::{Client, Error};
use polylet_kit::report;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

/// An answer that has not come by then never will.
const LIMIT: Duration = Duration::from_secs(15);
/// Nothing that a node is told is longer.
const MOST_BYTES: usize = 512 * 1024 * 1024;
/// To look through more takes its time.
const MUCH_BYTES: usize = 1024 * 1024;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// What kind of failure it is.
    pub(crate) refusal: Refusal,
    /// In words.
    pub(crate) message: String,
    /// It is a 404, and not of an object: the server does not serve such things.
    pub(crate) unserved: bool,
}

impl Failure {
    pub(crate) fn unreachable(message: impl Into<String>) -> Failure {
        Failure {
            refusal: Refusal::Unreachable,
            message: message.into(),
            unserved: false,
        }
    }

    pub(crate) fn of_status(status: Status) -> Failure {
        let refusal = Refusal::of(&Error::Api(status.clone().boxed()));
        let of_object = status.reason == "NotFound"
            && status
                .details
                .as_ref()
                .is_some_and(|of| !of.name.is_empty());
        Failure {
            refusal,
            unserved: refusal == Refusal::NotFound && !of_object,
            message: if status.message.is_empty() {
                format!("the API server answers with {}", status.code)
            } else {
                status.message
            },
        }
    }
}

/// A list: its items are read one after the other, as all at once take many times their room.
pub(crate) struct List {
    /// Its resource version.
    pub(crate) version: String,
    text: Vec<u8>,
    /// Where in the text they are.
    items: Vec<Range<usize>>,
}

impl List {
    /// Finds the items of an answer.
    pub(crate) async fn read(text: Vec<u8>) -> Result<List, Failure> {
        if text.len() < MUCH_BYTES {
            return List::found_in(text);
        }
        // A node's pods may be a hundred megabytes: meanwhile others get their turn.
        let finding = tokio::task::spawn_blocking(move || List::found_in(text));
        let broken = |error| Failure {
            refusal: Refusal::Broken,
            message: format!("reading the API server's answer was given up: {error}"),
            unserved: false,
        };
        finding.await.map_err(broken)?
    }

    fn found_in(text: Vec<u8>) -> Result<List, Failure> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            metadata: Metadata,
            #[serde(borrow, default)]
            items: Vec<&'a RawValue>,
        }
        let raw: Raw<'_> = read(&text)?;
        let begin = text.as_ptr().addr();
        let place = |item: &&RawValue| {
            let at = item.get().as_ptr().addr().saturating_sub(begin);
            at..at + item.get().len()
        };
        Ok(List {
            version: raw.metadata.resource_version,
            items: raw.items.iter().map(place).collect(),
            text,
        })
    }

    /// Its items, without those that make no sense.
    pub(crate) fn items(&self) -> impl Iterator<Item = Value> {
        let texts = self.items.iter().filter_map(|at| self.text.get(at.clone()));
        texts.filter_map(|text| serde_json::from_slice(text).ok())
    }
}

/// What is needed of an object's metadata to follow it.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) resource_version: String,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: &'a str,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// The whole answer to a GET.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Vec<u8>, Failure> {
    let request = Request::get(path).header(ACCEPT, "application/json");
    whole(client, request.body(Body::empty())).await
}

/// The whole answer to a POST.
pub(crate) async fn post(client: &Client, path: &str, body: String) -> Result<Vec<u8>, Failure> {
    let request = Request::post(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json");
    whole(client, request.body(Body::from(body.into_bytes()))).await
}

/// Begins to watch.
pub(crate) async fn watch(client: &Client, path: &str) -> Result<WatchLines, Failure> {
    let request = Request::get(path).header(ACCEPT, "application/json");
    let answer = timeout(LIMIT, send(client, request.body(Body::empty()))).await;
    let answer = answer.map_err(|_| silent())??;
    Ok(WatchLines {
        body: answer.into_body(),
        read: Vec::new(),
        looked: 0,
    })
}

/// Reads an answer. What is wrong with it is told by its place alone.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| odd(&error))
}

/// Reads one item of an answer.
pub(crate) fn item<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| odd(&error))
}

fn odd(error: &serde_json::Error) -> Failure {
    let (line, column) = (error.line(), error.column());
    Failure {
        refusal: Refusal::Broken,
        message: format!("the API server's answer makes no sense at line {line} column {column}"),
        unserved: false,
    }
}

/// The lines of a watch.
pub(crate) struct WatchLines {
    body: Body,
    read: Vec<u8>,
    /// So much of it has no end of a line.
    looked: usize,
}

impl WatchLines {
    /// The next line; `None` at the end of the watch. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let unseen = self.read.get(self.looked..).unwrap_or_default();
            if let Some(end) = unseen.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(self.looked + end + 1);
                self.looked = 0;
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            self.looked = self.read.len();
            if self.looked > MOST_BYTES {
                return Err(Failure::unreachable("a line of a watch has no end"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.read.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(Failure::unreachable(report(&error))),
            }
        }
    }
}

async fn whole(client: &Client, request: http::Result<Request<Body>>) -> Result<Vec<u8>, Failure> {
    let answer = timeout(LIMIT, send(client, request)).await;
    let mut body = answer.map_err(|_| silent())??.into_body();
    // A node's pods may be a hundred megabytes, and the line a slow one: only silence is bounded.
    let mut whole = Vec::new();
    while let Some(frame) = timeout(LIMIT, body.frame()).await.map_err(|_| silent())? {
        let frame = frame.map_err(|error| Failure::unreachable(report(&error)))?;
        whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if whole.len() > MOST_BYTES {
            return Err(Failure::unreachable("an answer has no end"));
        }
    }
    Ok(whole)
}

async fn send(
    client: &Client,
    request: http::Result<Request<Body>>,
) -> Result<Response<Body>, Failure> {
    let request = request.map_err(|error| Failure {
        refusal: Refusal::Invalid,
        message: report(&error),
        unserved: false,
    })?;
    let sent = client.send(request).await;
    let answer = sent.map_err(|error| Failure::unreachable(report(&error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Failure::unreachable(report(&error)))?;
    Err(refused(parts.status, &parts.headers, &body.to_bytes()))
}

/// Proxies, and servers with too much to do, answer with something else than a Status.
fn refused(code: http::StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let status = serde_json::from_slice::<Status>(body);
    let mut status = status.unwrap_or_else(|_| Status::failure(code.as_str(), ""));
    if status.message.is_empty() || status.message == code.as_str() {
        status.message = format!("the API server answers with {code}");
    }
    status.code = code.as_u16();
    let mut failure = Failure::of_status(status);
    let asked = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|seconds| seconds.parse::<u32>().ok());
    if let (Refusal::Busy(None), Some(seconds)) = (failure.refusal, asked) {
        failure.refusal = Refusal::Busy(Some(Duration::from_secs(u64::from(seconds))));
    }
    failure
}

fn silent() -> Failure {
    Failure::unreachable(format!(
        "the API server does not answer within {} s",
        LIMIT.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lists_small_and_large() {
        for length in [1, MUCH_BYTES] {
            let long = "x".repeat(length);
            let text = format!(
                r#"{{"metadata":{{"resourceVersion":"7"}}, "items": [ {{"a":"{long}"}} ,{{"b":"\u00e4"}}]}}"#
            );
            let list = List::read(text.into_bytes()).await.unwrap();
            let items: Vec<Value> = list.items().collect();
            assert_eq!(list.version, "7");
            assert_eq!(items[0]["a"].as_str().map(str::len), Some(length));
            assert_eq!(items[1]["b"], "ä");
            assert_eq!(items.len(), 2);
        }
        let empty = List::read(br#"{"metadata":{}}"#.to_vec()).await.unwrap();
        assert_eq!(empty.items().count(), 0);
        assert!(List::read(b"<html>".to_vec()).await.is_err());
    }

    #[test]
    fn refusals() {
        let mut asked = HeaderMap::new();
        asked.insert(RETRY_AFTER, http::HeaderValue::from_static("3"));
        let busy = refused(http::StatusCode::TOO_MANY_REQUESTS, &asked, b"Too many\n");
        assert_eq!(busy.refusal, Refusal::Busy(Some(Duration::from_secs(3))));
        let nothing = HeaderMap::new();
        let page = refused(http::StatusCode::NOT_FOUND, &nothing, b"404 page not found");
        assert!(page.unserved && page.refusal == Refusal::NotFound);
        let absent = br#"{"reason":"NotFound","message":"m","code":404,"details":{"name":"s"}}"#;
        let absent = refused(http::StatusCode::NOT_FOUND, &nothing, absent);
        assert!(!absent.unserved && absent.message == "m");
        let secret = read::<Event<'_>>(br#"{"type": {"hunter2": 1}}"#)
            .err()
            .unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
