//! `httpGet`: anything from 200 to 399 is success.

use polylet_http::{Get, Tls};
use polylet_kit::report;

use super::USER_AGENT;
use crate::core::types::{HttpAsk, Observation};

/// Asks, and follows redirects to the same host.
pub(crate) async fn ask(ask: &HttpAsk, pod: &str, tls: &Tls) -> Observation {
    let get = Get {
        https: ask.https,
        host: ask.host.as_deref().unwrap_or(pod).to_owned(),
        port: ask.port,
        path: ask.path.clone(),
        headers: ask.headers.clone(),
        user_agent: USER_AGENT,
    };
    match polylet_http::get(&get, tls).await {
        Ok(200..400) => Observation::Success,
        Ok(status) => Observation::Failure(format!("HTTP probe failed with statuscode: {status}")),
        Err(error) => Observation::Failure(report(&error)),
    }
}
