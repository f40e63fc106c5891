//! Upgrades of HTTP connections: which protocol a client asks for.

use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName};

/// The WebSocket protocol of commands whose streams are closed one by one.
pub(crate) const REMOTE_COMMAND_V5: &str = "v5.channel.k8s.io";
/// The prefix of WebSocket protocols that carry SPDY.
pub(crate) const TUNNEL_PREFIX: &str = "SPDY/3.1+";
const TUNNEL_SUFFIX: &str = ".k8s.io";

/// Whether the client asks for an upgrade.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut text = values.filter_map(|value| value.to_str().ok());
    text.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Whether the client asks for a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let protocol = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
        && is_upgrade(headers)
}

/// Whether the client asks for a WebSocket in which streams are closed one by one.
pub(crate) fn is_remote_command_v5(headers: &HeaderMap) -> bool {
    is_websocket(headers) && websocket_protocols(headers).any(|one| one == REMOTE_COMMAND_V5)
}

/// The protocols over SPDY for which the client asks through a WebSocket; empty if it does not.
pub(crate) fn tunnelled_protocols(headers: &HeaderMap) -> Vec<&str> {
    if !is_websocket(headers) {
        return Vec::new();
    }
    let tunnelled = websocket_protocols(headers)
        .filter(|one| one.ends_with(TUNNEL_SUFFIX))
        .filter_map(|one| one.strip_prefix(TUNNEL_PREFIX));
    tunnelled.collect()
}

fn websocket_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let value = headers.get(SEC_WEBSOCKET_PROTOCOL);
    let text = value.and_then(|value| value.to_str().ok());
    text.unwrap_or_default().split(',').map(str::trim)
}

/// Headers of a client that are not for the runtime: its credentials.
pub(crate) fn is_withheld(name: &HeaderName) -> bool {
    name == http::header::AUTHORIZATION
}

/// `X-Forwarded-For` with one more address.
pub(crate) fn forwarded_for(before: Option<&str>, client: &str) -> String {
    match before {
        Some(before) if !before.is_empty() => format!("{before}, {client}"),
        _ => client.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers
                .try_append(*name, HeaderValue::from_static(value))
                .unwrap();
        }
        headers
    }

    #[test]
    fn protocols_that_clients_ask_for() {
        let none: &[&str] = &[];
        let forward = &["portforward"][..];
        for (pairs, upgrade, websocket, v5) in [
            (&[][..], false, false, false),
            (&[("upgrade", "websocket")], false, false, false),
            (
                &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")],
                true,
                false,
                false,
            ),
            (
                &[
                    ("connection", "keep-alive, upgrade"),
                    ("upgrade", "WebSocket"),
                    ("sec-websocket-protocol", "v4.channel.k8s.io"),
                ],
                true,
                true,
                false,
            ),
            (
                &[
                    ("connection", "upgrade"),
                    ("upgrade", "websocket"),
                    (
                        "sec-websocket-protocol",
                        "v5.channel.k8s.io, v4.channel.k8s.io",
                    ),
                ],
                true,
                true,
                true,
            ),
            (
                &[
                    ("connection", "upgrade"),
                    ("upgrade", "SPDY/3.1"),
                    ("sec-websocket-protocol", "v5.channel.k8s.io"),
                ],
                true,
                false,
                false,
            ),
        ] {
            let headers = headers(pairs);
            let found = (
                is_upgrade(&headers),
                is_websocket(&headers),
                is_remote_command_v5(&headers),
            );
            assert_eq!(found, (upgrade, websocket, v5), "{pairs:?}");
            assert_eq!(tunnelled_protocols(&headers), none, "{pairs:?}");
        }
        let tunnel = |protocols| {
            headers(&[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", protocols),
            ])
        };
        let both = tunnel("v4.channel.k8s.io,SPDY/3.1+portforward.k8s.io");
        assert_eq!(tunnelled_protocols(&both), ["portforward.k8s.io"]);
        assert_ne!(tunnelled_protocols(&both), forward);
        assert_eq!(tunnelled_protocols(&tunnel("SPDY/3.1+x.example")), none);
    }

    #[test]
    fn addresses_of_clients_are_appended() {
        assert_eq!(forwarded_for(None, "::1"), "::1");
        assert_eq!(forwarded_for(Some(""), "::1"), "::1");
        assert_eq!(forwarded_for(Some("10.0.0.1"), "::1"), "10.0.0.1, ::1");
    }
}
