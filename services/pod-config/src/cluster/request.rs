//! Single requests to the API server and their errors.
//!
//! Neither logs nor errors contain any part of a response body, which may be a Secret.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use polylet_api::ApiErrorKind;
use polylet_api::kube::client::Body;
use polylet_api::kube::core::Status;
use polylet_api::kube::{Client, Error};
use polylet_kit::report;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

/// Longest wait for a response or for the next part of its body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Limit of a response body, far above any real one.
const MAX_BODY_BYTES: usize = 512 * 1024 * 1024;
/// Larger lists are parsed on a thread that may block.
const BLOCKING_PARSE_BYTES: usize = 1024 * 1024;

/// A failed request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiRequestError {
    /// Kind of the failure.
    pub(crate) kind: ApiErrorKind,
    /// Message of the API server, or of the client.
    pub(crate) message: String,
    /// Whether it is a 404 for the resource type instead of an object: the server does not serve it.
    pub(crate) unserved: bool,
    /// Whether the API server's admission does not know the pod yet. It looks pods up in a cache that
    /// may be behind the watch that the node learned of the pod from.
    pub(crate) pod_not_cached: bool,
}

impl ApiRequestError {
    pub(crate) fn new(kind: ApiErrorKind, message: impl Into<String>) -> ApiRequestError {
        ApiRequestError {
            kind,
            message: message.into(),
            unserved: false,
            pod_not_cached: false,
        }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> ApiRequestError {
        ApiRequestError::new(ApiErrorKind::Unreachable, message)
    }

    pub(crate) fn from_status(status: Status) -> ApiRequestError {
        let kind = ApiErrorKind::from_error(&Error::Api(status.clone().boxed()));
        let names_object = status.reason == "NotFound"
            && status
                .details
                .as_ref()
                .is_some_and(|details| !details.name.is_empty());
        // A cache names the resource in the singular, the storage in the plural.
        let pod_not_cached = names_object
            && status
                .details
                .as_ref()
                .is_some_and(|details| details.kind == "pod");
        ApiRequestError {
            kind,
            unserved: kind == ApiErrorKind::NotFound && !names_object,
            pod_not_cached,
            message: if status.message.is_empty() {
                format!("the API server responded with {}", status.code)
            } else {
                status.message
            },
        }
    }
}

/// A list whose items are decoded one by one: all at once would take many times its size.
pub(crate) struct ListResponse {
    /// Resource version of the list.
    pub(crate) version: String,
    text: Vec<u8>,
    /// Positions of the items in the text.
    items: Vec<Range<usize>>,
}

impl ListResponse {
    /// Locates the items of a response body.
    pub(crate) async fn parse(text: Vec<u8>) -> Result<ListResponse, ApiRequestError> {
        if text.len() < BLOCKING_PARSE_BYTES {
            return ListResponse::parse_blocking(text);
        }
        // The pods of a node may be a hundred megabytes, which must not stop the other tasks.
        let parsing = tokio::task::spawn_blocking(move || ListResponse::parse_blocking(text));
        parsing.await.map_err(|error| {
            let message = format!("parsing the API server's response failed: {error}");
            ApiRequestError::new(ApiErrorKind::ServerError, message)
        })?
    }

    pub(crate) fn parse_blocking(text: Vec<u8>) -> Result<ListResponse, ApiRequestError> {
        #[derive(Deserialize)]
        struct RawList<'a> {
            metadata: ListMetadata,
            #[serde(borrow, default)]
            items: Vec<&'a RawValue>,
        }
        let list: RawList<'_> = parse(&text)?;
        let begin = text.as_ptr().addr();
        let range = |item: &&RawValue| {
            let at = item.get().as_ptr().addr().saturating_sub(begin);
            at..at + item.get().len()
        };
        Ok(ListResponse {
            version: list.metadata.resource_version,
            items: list.items.iter().map(range).collect(),
            text,
        })
    }

    /// The items, without invalid ones.
    pub(crate) fn items(&self) -> impl Iterator<Item = Value> {
        let texts = self.items.iter().filter_map(|at| self.text.get(at.clone()));
        texts.filter_map(|text| serde_json::from_slice(text).ok())
    }
}

/// The part of a list's metadata that watches need.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(crate) struct WatchEvent {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) object: Value,
}

/// Sends a GET; returns the response body.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Vec<u8>, ApiRequestError> {
    let request = Request::get(path).header(ACCEPT, "application/json");
    read_body(client, request.body(Body::empty())).await
}

/// Sends a POST; returns the response body.
pub(crate) async fn post(
    client: &Client,
    path: &str,
    body: String,
) -> Result<Vec<u8>, ApiRequestError> {
    let request = Request::post(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json");
    read_body(client, request.body(Body::from(body.into_bytes()))).await
}

/// Starts a watch.
pub(crate) async fn watch(client: &Client, path: &str) -> Result<WatchLines, ApiRequestError> {
    let request = Request::get(path).header(ACCEPT, "application/json");
    let response = timeout(RESPONSE_TIMEOUT, send(client, request.body(Body::empty()))).await;
    let response = response.map_err(|_| timed_out())??;
    Ok(WatchLines {
        body: response.into_body(),
        buffer: BytesMut::new(),
        scanned: 0,
    })
}

/// Decodes a response body. Errors contain the position only.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ApiRequestError> {
    serde_json::from_slice(bytes).map_err(|error| invalid_json(&error))
}

fn invalid_json(error: &serde_json::Error) -> ApiRequestError {
    let (line, column) = (error.line(), error.column());
    let message = format!("invalid JSON from API server at line {line} column {column}");
    ApiRequestError::new(ApiErrorKind::ServerError, message)
}

/// The lines of a watch.
pub(crate) struct WatchLines {
    body: Body,
    buffer: BytesMut,
    /// Length of the buffer's part without a line end.
    scanned: usize,
}

impl WatchLines {
    /// The next line; `None` at the end of the watch. Cancellation loses no data.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiRequestError> {
        loop {
            let unscanned = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(end) = unscanned.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + end + 1);
                self.scanned = 0;
                return Ok(Some(line.freeze()));
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_BODY_BYTES {
                return Err(ApiRequestError::unreachable(
                    "a line of the watch is too long",
                ));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(ApiRequestError::unreachable(report(&error))),
            }
        }
    }
}

async fn read_body(
    client: &Client,
    request: http::Result<Request<Body>>,
) -> Result<Vec<u8>, ApiRequestError> {
    let response = timeout(RESPONSE_TIMEOUT, send(client, request)).await;
    let mut body = response.map_err(|_| timed_out())??.into_body();
    // The body may be large and the link slow: the timeout is for each part of it.
    let mut bytes = Vec::new();
    while let Some(frame) = timeout(RESPONSE_TIMEOUT, body.frame())
        .await
        .map_err(|_| timed_out())?
    {
        let frame = frame.map_err(|error| ApiRequestError::unreachable(report(&error)))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if bytes.len() > MAX_BODY_BYTES {
            return Err(ApiRequestError::unreachable("the response is too long"));
        }
    }
    Ok(bytes)
}

async fn send(
    client: &Client,
    request: http::Result<Request<Body>>,
) -> Result<Response<Body>, ApiRequestError> {
    let request =
        request.map_err(|error| ApiRequestError::new(ApiErrorKind::Invalid, report(&error)))?;
    let sent = client.send(request).await;
    let response = sent.map_err(|error| ApiRequestError::unreachable(report(&error)))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| ApiRequestError::unreachable(report(&error)))?;
    let body = body.to_bytes();
    Err(error_from_response(parts.status, &parts.headers, &body))
}

/// The error of a response. Proxies and overloaded servers send something else than a Status.
pub(crate) fn error_from_response(
    code: http::StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> ApiRequestError {
    let status = serde_json::from_slice::<Status>(body);
    let mut status = status.unwrap_or_else(|_| Status::failure(code.as_str(), ""));
    if status.message.is_empty() || status.message == code.as_str() {
        status.message = format!("the API server responded with {code}");
    }
    status.code = code.as_u16();
    let mut error = ApiRequestError::from_status(status);
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|seconds| seconds.parse::<u32>().ok());
    if let (ApiErrorKind::TooManyRequests(None), Some(seconds)) = (error.kind, retry_after) {
        let delay = Duration::from_secs(u64::from(seconds));
        error.kind = ApiErrorKind::TooManyRequests(Some(delay));
    }
    error
}

fn timed_out() -> ApiRequestError {
    ApiRequestError::unreachable(format!(
        "the API server did not respond within {} s",
        RESPONSE_TIMEOUT.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_and_large_lists_are_parsed() {
        for length in [1, BLOCKING_PARSE_BYTES] {
            let long = "x".repeat(length);
            let text = format!(
                r#"{{"metadata":{{"resourceVersion":"7"}}, "items": [ {{"a":"{long}"}} ,{{"b":"\u00e4"}}]}}"#
            );
            let list = ListResponse::parse(text.into_bytes()).await.unwrap();
            let items: Vec<Value> = list.items().collect();
            assert_eq!(list.version, "7");
            assert_eq!(items[0]["a"].as_str().map(str::len), Some(length));
            assert_eq!(items[1]["b"], "ä");
            assert_eq!(items.len(), 2);
        }
        let empty = ListResponse::parse(br#"{"metadata":{}}"#.to_vec())
            .await
            .unwrap();
        assert_eq!(empty.items().count(), 0);
        assert!(ListResponse::parse(b"<html>".to_vec()).await.is_err());
    }

    #[test]
    fn errors_are_classified_and_quote_nothing() {
        let mut headers = HeaderMap::new();
        let retry_after = http::HeaderValue::from_static("3");
        headers.try_insert(RETRY_AFTER, retry_after).unwrap();
        let code = http::StatusCode::TOO_MANY_REQUESTS;
        let busy = error_from_response(code, &headers, b"Too many\n");
        let delay = Some(Duration::from_secs(3));
        assert_eq!(busy.kind, ApiErrorKind::TooManyRequests(delay));
        let none = HeaderMap::new();
        let not_found = http::StatusCode::NOT_FOUND;
        let page = error_from_response(not_found, &none, b"404 page not found");
        assert!(page.unserved && page.kind == ApiErrorKind::NotFound);
        let absent = br#"{"reason":"NotFound","message":"m","code":404,"details":{"name":"s"}}"#;
        let absent = error_from_response(not_found, &none, absent);
        assert!(!absent.unserved && absent.message == "m");
        let of_pod = |kind: &str| {
            let body = format!(
                r#"{{"reason":"NotFound","code":404,"details":{{"name":"p","kind":"{kind}"}}}}"#
            );
            error_from_response(not_found, &none, body.as_bytes())
        };
        assert!(of_pod("pod").pod_not_cached && !of_pod("pods").pod_not_cached);
        let secret = parse::<WatchEvent>(br#"{"type": {"hunter2": 1}}"#)
            .err()
            .unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
