//! The request for the configured URL.

use polylet_http::{Client, Get, GetError, GetProgress, GetTarget};
use polylet_kit::report;

/// Upstream's limit on the size of a manifest.
const MAX_BYTES: usize = 10 * 1024 * 1024;

/// The client of all requests of this source.
pub(super) fn client() -> Client {
    Client::for_sources(MAX_BYTES)
}

/// The body of a response with status 200, or an error message. The message does not show the URL
/// beyond its host: the rest may be secret.
pub(super) async fn get(
    client: &Client,
    url: &str,
    headers: &[(String, String)],
) -> Result<Vec<u8>, String> {
    let request = Get {
        target: GetTarget::parse(url).map_err(|error| error.to_string())?,
        headers: headers.to_vec(),
        user_agent: "",
        requester: String::new(),
    };
    match client.get(&request, &GetProgress::default()).await {
        Ok(response) if response.status == 200 => Ok(response.body),
        Ok(response) => Err(format!(
            "responds with status {}, expected 200",
            response.status
        )),
        Err(error) => Err(message(&error)),
    }
}

fn message(error: &GetError) -> String {
    match error {
        GetError::Headers(error) | GetError::Get { source: error, .. } => report(error),
        GetError::Redirect { .. } => "redirects to something that is not an http URL".to_owned(),
        GetError::TooManyRedirects { .. } => "redirects too many times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_do_not_show_secrets() {
        for url in [
            "http://user:secret@127.0.0.1:1/secret?secret",
            "ftp://h/secret",
            "secret",
        ] {
            let headers = [("X-Secret".to_owned(), "secret".to_owned())];
            let message = get(&client(), url, &headers).await.unwrap_err();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
