//! `httpGet`: anything from 200 to 299 is success; so is, with a warning, what is left of redirects.

use polylet_http::{Answer, Get, GetError, Heard, HttpError, Tls};
use polylet_kit::report;

use super::USER_AGENT;
use crate::core::types::{HttpAsk, Observation};

/// The request of a probe; `pod` is the address it has none of its own for.
pub(crate) fn request(ask: &HttpAsk, pod: &str) -> Get {
    Get {
        https: ask.https,
        host: ask.host.as_deref().unwrap_or(pod).to_owned(),
        port: ask.port,
        path: ask.path.clone(),
        headers: ask.headers.clone(),
        user_agent: USER_AGENT,
    }
}

/// Asks, and follows redirects to the same host.
pub(crate) async fn ask(get: &Get, tls: &Tls, heard: &Heard) -> Observation {
    match polylet_http::fetch(get, tls, heard).await {
        Ok(answer) => judge(&answer),
        // As upstream: half an answer is a probe that went wrong.
        Err(error) if broke_off(&error) => Observation::Unknown(report(&error)),
        Err(error) => Observation::Failure(report(&error)),
    }
}

/// What an attempt is whose time ends. As upstream, a server that has begun to answer is not blamed
/// for its body.
pub(crate) fn late(get: &Get, heard: &Heard) -> Observation {
    let why = format!("Get {:?}: context deadline exceeded", get.url());
    if heard.is_answering() {
        Observation::Unknown(format!("{why} (Client.Timeout while reading body)"))
    } else {
        Observation::Failure(format!(
            "{why} (Client.Timeout exceeded while awaiting headers)"
        ))
    }
}

fn broke_off(error: &GetError) -> bool {
    matches!(
        error,
        GetError::Get {
            source: HttpError::Body { .. },
            ..
        }
    )
}

fn judge(answer: &Answer) -> Observation {
    match answer.status {
        200..300 => Observation::Success,
        300..400 => {
            let body = String::from_utf8_lossy(&answer.body);
            Observation::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        status => Observation::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}
