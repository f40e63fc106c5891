//! The proxy in front of the API server.
//!
//! The `proxy-url` of a kubeconfig applies to every server. Without one, the environment is used as
//! in client-go: `HTTPS_PROXY` (`HTTP_PROXY` for a server without TLS), `NO_PROXY`, and their
//! lower-case forms. Image pulls are up to the runtime, and probes never use a proxy.

mod connector;
#[cfg(test)]
mod connector_tests;
mod no_proxy;
mod url;

use http::Uri;
use http::uri::Scheme;

pub(crate) use self::connector::ProxyConnector;
pub use self::url::ProxyError;
pub(crate) use self::url::ProxyUrl;

/// The proxy setting that applies to a server.
pub(crate) struct ProxySetting {
    /// `proxy-url`, or the name of an environment variable.
    pub(crate) source: &'static str,
    pub(crate) from_environment: bool,
    /// The URL, or why it is invalid.
    pub(crate) proxy: Result<ProxyUrl, ProxyError>,
}

/// The proxy setting for this server, or `None` for a direct connection. `variable` reads the
/// environment.
pub(crate) fn select(
    proxy_url: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<ProxySetting> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        return Some(ProxySetting {
            source: "proxy-url",
            from_environment: false,
            proxy: ProxyUrl::from_kubeconfig(url),
        });
    }
    let first = |names: [&'static str; 2]| {
        let non_empty = |name| Some((name, variable(name).filter(|value| !value.is_empty())?));
        names.into_iter().find_map(non_empty)
    };
    let plain = server.scheme() == Some(&Scheme::HTTP);
    let names = if plain {
        ["HTTP_PROXY", "http_proxy"]
    } else {
        ["HTTPS_PROXY", "https_proxy"]
    };
    let (source, value) = first(names)?;
    let port = server.port_u16().unwrap_or(if plain { 80 } else { 443 });
    let (_, list) = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    if no_proxy::matches(&list, server.host()?, port) {
        return None;
    }
    let proxy = ProxyUrl::from_environment(&value);
    Some(ProxySetting {
        source,
        from_environment: true,
        proxy,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn selected(
        proxy_url: Option<&str>,
        server: &str,
        variables: &[(&str, &str)],
    ) -> Option<String> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let setting = select(proxy_url, &server.parse().unwrap(), variable)?;
        Some(match setting.proxy {
            Ok(proxy) => proxy.to_string(),
            Err(error) => format!("{}: {error}", setting.source),
        })
    }

    #[test]
    fn the_variable_depends_on_the_scheme_of_the_server() {
        let both = [
            ("HTTP_PROXY", "http.proxy.tld"),
            ("HTTPS_PROXY", "https://secure.proxy.tld"),
        ];
        for (server, variables, expected) in [
            ("http://a.tld", &both[..], Some("http://http.proxy.tld:80")),
            ("https://a.tld", &both, Some("https://secure.proxy.tld:443")),
            ("https://a.tld", &both[..1], None),
            ("https://a.tld", &[], None),
            (
                "https://a.tld",
                &[("https_proxy", "low:1")],
                Some("http://low:1"),
            ),
            (
                "https://a.tld",
                &[("https_proxy", "low:1"), ("HTTPS_PROXY", "up:1")],
                Some("http://up:1"),
            ),
            (
                "https://a.tld",
                &[("https_proxy", "low:1"), ("HTTPS_PROXY", "")],
                Some("http://low:1"),
            ),
            ("https://a.tld", &[("ALL_PROXY", "all:1")], None),
            (
                "https://a.tld",
                &[("https_proxy", "low:1"), ("no_proxy", "b.tld,a.tld:443")],
                None,
            ),
            (
                "https://a.tld:6443",
                &[("https_proxy", "low:1"), ("no_proxy", "b.tld,a.tld:443")],
                Some("http://low:1"),
            ),
            // An IPv6 address is not matched as a domain.
            (
                "https://[1000::1]:123",
                &[("https_proxy", "low:1"), ("NO_PROXY", "1")],
                Some("http://low:1"),
            ),
            ("https://127.0.0.1:6443", &both, None),
            ("https://[::1]:6443", &both, None),
            ("https://localhost:6443", &both, None),
        ] {
            let actual = selected(None, server, variables);
            assert_eq!(actual.as_deref(), expected, "{server} {variables:?}");
        }
    }

    #[test]
    fn the_kubeconfig_takes_precedence_over_the_environment() {
        let variables = [("HTTPS_PROXY", "other:1"), ("NO_PROXY", "*")];
        for server in ["https://a.tld", "https://127.0.0.1:6443"] {
            let actual = selected(Some("http://mine:3128"), server, &variables);
            assert_eq!(actual.as_deref(), Some("http://mine:3128"));
            assert_eq!(selected(None, server, &variables), None);
            assert_eq!(selected(Some(""), server, &variables), None);
        }
    }

    #[test]
    fn errors_name_the_setting() {
        let actual = selected(
            None,
            "https://a.tld",
            &[("https_proxy", "ftp://u:hunter2@h")],
        );
        let expected = "https_proxy: unsupported scheme \"ftp\", must be http, https, or socks5";
        assert_eq!(actual.as_deref(), Some(expected));
    }
}
