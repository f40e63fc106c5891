//! `httpGet`: status 200 to 299 is a success; so is, with a warning, a redirect that is not followed.

use polylet_http::{Client, Get, GetError, GetProgress, GetResponse, GetTarget, HttpError};
use polylet_kit::report;

use super::USER_AGENT;
use crate::core::types::{HttpGet, ProbeAttempt, ProbeOutput};

/// The request of a probe. The pod's address is the default host.
pub(crate) fn request(get: &HttpGet, attempt: &ProbeAttempt) -> Get {
    let host = get.host.as_deref().unwrap_or(&attempt.host);
    Get {
        target: GetTarget::new(get.https, host, get.port, &get.path),
        headers: get.headers.clone(),
        user_agent: USER_AGENT,
        requester: attempt.id.pod.to_string(),
    }
}

/// Sends the request, following redirects to the same host.
pub(crate) async fn probe(get: &Get, client: &Client, progress: &GetProgress) -> ProbeOutput {
    match client.get(get, progress).await {
        Ok(response) => output(&response),
        // As upstream: an incomplete body is an error of the probe itself.
        Err(error) if is_incomplete_body(&error) => ProbeOutput::Unknown(report(&error)),
        Err(error) if error.is_out_of_descriptors() => ProbeOutput::Unknown(report(&error)),
        Err(error) => ProbeOutput::Failure(report(&error)),
    }
}

/// The result of an attempt without a response in time. As upstream, a server that has begun to
/// respond does not fail because of its body.
pub(crate) fn timed_out(get: &Get, progress: &GetProgress) -> ProbeOutput {
    let message = format!("Get {:?}: context deadline exceeded", get.target.url());
    if progress.is_reading_body() {
        ProbeOutput::Unknown(format!("{message} (Client.Timeout while reading body)"))
    } else {
        ProbeOutput::Failure(format!(
            "{message} (Client.Timeout exceeded while awaiting headers)"
        ))
    }
}

fn is_incomplete_body(error: &GetError) -> bool {
    matches!(
        error,
        GetError::Get {
            source: HttpError::Body { .. },
            ..
        }
    )
}

fn output(response: &GetResponse) -> ProbeOutput {
    match response.status {
        200..300 => ProbeOutput::Success,
        300..400 => {
            let body = String::from_utf8_lossy(&response.body);
            ProbeOutput::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        status => ProbeOutput::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}
