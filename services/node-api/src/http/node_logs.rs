//! `/logs/`: the files below `/var/log`, as Go's file server serves them.
//!
//! Unlike there, links are followed only to what is below that directory, or below that of containers' logs:
//! others could name any file of the node, and pods may write to the directory. Pipes and devices are not opened.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_MODIFIED_SINCE, LAST_MODIFIED,
    LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::journal;
use super::log_directories::{LogDirectories, reason};
use super::not_served::NO_SNIFF;
use crate::core::file_server::{
    FilePart, SNIFFED, clean, http_date, is_unmodified, listing, media_type, part, redirect,
};
use crate::core::node_log_query;

/// Most names of a listing.
const MAX_NAMES: usize = 100_000;
/// Bytes of a file that are read at a time.
const CHUNK: u64 = 64 << 10;

#[derive(Clone)]
struct NodeLogs {
    directories: Arc<LogDirectories>,
    /// `enableSystemLogQuery`: the program that reads the journal.
    journalctl: Option<PathBuf>,
}

/// The endpoint; with the program that reads the journal, logs of services are served, too.
pub(crate) fn router(directories: LogDirectories, journalctl: Option<PathBuf>) -> Router {
    Router::new()
        .route("/logs/", get(serve))
        .route("/logs/{*path}", get(serve))
        .with_state(NodeLogs {
            directories: Arc::new(directories),
            journalctl,
        })
}

/// What a request without or with a query asks for.
enum Queried {
    /// The path's own file.
    Path,
    /// The one file that the query names.
    File(String),
    /// The response to a query for services, or to one that is refused.
    Response(Response),
}

fn refuse(code: StatusCode, text: &str) -> Queried {
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Queried::Response((code, headers, format!("{text}\n")).into_response())
}

fn queried(
    journalctl: PathBuf,
    directories: &Arc<LogDirectories>,
    path: &str,
    pairs: &[(String, String)],
    headers: &HeaderMap,
) -> Queried {
    let mut query = match node_log_query::parse(pairs) {
        Ok(Some(query)) => query,
        Ok(None) => return Queried::Path,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, &message),
    };
    if !matches!(path, "" | "/") {
        let message = "path not allowed in query mode";
        return refuse(StatusCode::NOT_ACCEPTABLE, message);
    }
    let stat = |file: &str| {
        let opened = directories.open_strictly(file);
        let opened = opened.map_err(|error| format!("statat {file}: {}", reason(&error)));
        opened.map(drop)
    };
    if let Err(message) = query.validate(stat) {
        return refuse(StatusCode::NOT_ACCEPTABLE, &message);
    }
    if !query.services.is_empty() {
        return Queried::Response(journal::respond(
            journalctl,
            Arc::clone(directories),
            query,
            headers,
        ));
    }
    query.files.pop().map_or(Queried::Path, Queried::File)
}

async fn serve(State(logs): State<NodeLogs>, request: Request<Body>) -> Response {
    let directories = logs.directories;
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().strip_prefix("/logs/").unwrap_or_default();
    let Some(mut path) = decode(path) else {
        return failure(&ErrorKind::InvalidInput.into());
    };
    if let Some(journalctl) = logs.journalctl {
        let pairs = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let pairs: Vec<_> = pairs.into_owned().collect();
        match queried(journalctl, &directories, &path, &pairs, &parts.headers) {
            Queried::Response(response) => return response,
            Queried::File(file) => path = file,
            Queried::Path => {}
        }
    }
    let query = parts.uri.query().map(str::to_owned);
    let response =
        spawn_blocking(move || respond(&directories, &path, query.as_deref(), &parts.headers));
    match response.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => failure(&error),
        Err(error) => failure(&Error::other(error)),
    }
}

/// The path without percent signs; `None` for one that is no text or has a zero byte.
fn decode(path: &str) -> Option<String> {
    // A query in which a plus sign is a space: it is none in a path.
    let query = format!("={}", path.replace('+', "%2B").replace('&', "%26"));
    let decoded = url::form_urlencoded::parse(query.as_bytes()).next();
    let decoded = decoded.map(|(_, path)| path.into_owned())?;
    (!decoded.contains(['\0', char::REPLACEMENT_CHARACTER])).then_some(decoded)
}

fn respond(
    directories: &LogDirectories,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let cleaned = clean(path);
    let is_index = redirect(path, false).as_deref() == Some("./");
    let opened = if is_index {
        None
    } else {
        Some(directories.open(&cleaned)?)
    };
    let is_directory = opened
        .as_ref()
        .is_some_and(|(_, metadata)| metadata.is_dir());
    let Some((file, metadata)) = opened.filter(|_| redirect(path, is_directory).is_none()) else {
        let to = redirect(path, is_directory).unwrap_or_default();
        return Ok(redirected(&to, query));
    };
    let name = cleaned.rsplit('/').next().unwrap_or_default().to_owned();
    if !is_directory {
        return send(file, &metadata, &name, headers);
    }
    let index = format!("{cleaned}/index.html");
    match directories.open(index.trim_start_matches('/')) {
        Ok((file, metadata)) if metadata.is_file() => send(file, &metadata, "index.html", headers),
        _ => list(&file, &metadata, headers),
    }
}

fn redirected(to: &str, query: Option<&str>) -> Response {
    let query = query.map(|query| format!("?{query}"));
    let location = format!("{to}{}", query.unwrap_or_default());
    (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response()
}

fn header<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn modified(metadata: &Metadata) -> Option<Timestamp> {
    Timestamp::try_from(metadata.modified().ok()?).ok()
}

/// 304, if the client has what there is.
fn unmodified(metadata: &Metadata, headers: &HeaderMap) -> Option<Response> {
    let time = modified(metadata)?;
    let is_unmodified = is_unmodified(header(headers, &IF_MODIFIED_SINCE), time);
    let date = [(LAST_MODIFIED, http_date(time)?)];
    is_unmodified.then(|| (StatusCode::NOT_MODIFIED, date).into_response())
}

fn list(directory: &File, metadata: &Metadata, headers: &HeaderMap) -> Result<Response, Error> {
    if let Some(unmodified) = unmodified(metadata, headers) {
        return Ok(unmodified);
    }
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)?.take(MAX_NAMES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_directory = entry.file_type() == rustix::fs::FileType::Directory;
        if !matches!(name.as_str(), "." | "..") {
            names.push(if is_directory { name + "/" } else { name });
        }
    }
    let media_type = [(CONTENT_TYPE, "text/html; charset=utf-8")];
    let mut response = (media_type, listing(names)).into_response();
    set_modified(&mut response, metadata);
    Ok(response)
}

fn set_modified(response: &mut Response, metadata: &Metadata) {
    let date = modified(metadata).and_then(http_date);
    if let Some(date) = date.and_then(|date| HeaderValue::from_str(&date).ok()) {
        let _ = response.headers_mut().try_insert(LAST_MODIFIED, date);
    }
}

/// A file, or a part of it.
fn send(
    mut file: File,
    metadata: &Metadata,
    name: &str,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    if let Some(unmodified) = unmodified(metadata, headers) {
        return Ok(unmodified);
    }
    let size = metadata.len();
    let mut first = Vec::with_capacity(SNIFFED);
    Read::by_ref(&mut file)
        .take(SNIFFED as u64)
        .read_to_end(&mut first)?;
    let (code, start, length) = match part(header(headers, &RANGE), size) {
        FilePart::Whole => (StatusCode::OK, 0, size),
        FilePart::Range { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        FilePart::Unsatisfiable => {
            let range = [(CONTENT_RANGE, format!("bytes */{size}"))];
            let text = "invalid range: failed to overlap\n";
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range, text).into_response());
        }
    };
    file.seek(SeekFrom::Start(start))?;
    let headers = [
        (CONTENT_TYPE, media_type(name, &first).to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (ACCEPT_RANGES, "bytes".to_owned()),
    ];
    let range = (code == StatusCode::PARTIAL_CONTENT).then(|| {
        let last = (start + length).saturating_sub(1);
        [(CONTENT_RANGE, format!("bytes {start}-{last}/{size}"))]
    });
    let body = Body::from_stream(chunks(file, length));
    let mut response = (code, headers, range, body).into_response();
    set_modified(&mut response, metadata);
    Ok(response)
}

/// The next bytes of a file. A file that became shorter ends the response early.
fn chunks(file: File, length: u64) -> impl futures::Stream<Item = Result<Bytes, Error>> {
    stream::try_unfold((file, length), |(file, remaining)| async move {
        if remaining == 0 {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            let mut chunk = Vec::new();
            (&file).take(remaining.min(CHUNK)).read_to_end(&mut chunk)?;
            Ok::<_, Error>((file, chunk))
        });
        let (file, chunk) = read.await.map_err(Error::other)??;
        if chunk.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let remaining = remaining.saturating_sub(chunk.len() as u64);
        Ok(Some((Bytes::from(chunk), (file, remaining))))
    })
}

fn failure(error: &Error) -> Response {
    let (code, text) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            (StatusCode::NOT_FOUND, "404 page not found\n")
        }
        ErrorKind::PermissionDenied => (StatusCode::FORBIDDEN, "403 Forbidden\n"),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "500 Internal Server Error\n",
        ),
    };
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        ),
        (X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
    ];
    (code, headers, text).into_response()
}

#[cfg(test)]
#[path = "node_logs_tests.rs"]
mod tests;
