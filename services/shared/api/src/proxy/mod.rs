//! The proxy before the API server: which one, and how a connection goes through it.
//!
//! A kubeconfig's `proxy-url` counts for every server. Without one the environment does, as in
//! upstream's clients: `HTTPS_PROXY` (`HTTP_PROXY` for a server of plain HTTP), `NO_PROXY`, and their
//! lower-case forms. Images are the runtime's own business, and probes go straight to their pods.

mod address;
mod except;
mod reach;
#[cfg(test)]
mod reach_tests;

use http::Uri;
use http::uri::Scheme;

pub(crate) use self::address::Proxy;
pub use self::address::ProxyError;
pub(crate) use self::reach::Reach;

/// Which proxy is named for a server, and where it is named.
pub(crate) struct Named {
    /// `its proxy-url`, or the name of a variable.
    pub(crate) place: &'static str,
    /// Whether that is a variable.
    pub(crate) by_environment: bool,
    /// What is said there, or why it is of no use.
    pub(crate) proxy: Result<Proxy, ProxyError>,
}

/// The proxy for this server; none where it is reached without. `variable` looks into the environment.
pub(crate) fn named(
    proxy_url: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Named> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        return Some(Named {
            place: "its proxy-url",
            by_environment: false,
            proxy: Proxy::of_kubeconfig(url),
        });
    }
    let first = |names: [&'static str; 2]| {
        let said = |name| Some((name, variable(name).filter(|value| !value.is_empty())?));
        names.into_iter().find_map(said)
    };
    let plain = server.scheme() == Some(&Scheme::HTTP);
    let names = if plain {
        ["HTTP_PROXY", "http_proxy"]
    } else {
        ["HTTPS_PROXY", "https_proxy"]
    };
    let (place, said) = first(names)?;
    let port = server.port_u16().unwrap_or(if plain { 80 } else { 443 });
    let (_, list) = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    if except::excepted(&list, server.host()?, port) {
        return None;
    }
    let proxy = Proxy::of_environment(&said);
    Some(Named {
        place,
        by_environment: true,
        proxy,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn asked(proxy_url: Option<&str>, server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let named = named(proxy_url, &server.parse().unwrap(), variable)?;
        Some(match named.proxy {
            Ok(proxy) => proxy.to_string(),
            Err(error) => format!("{}: {error}", named.place),
        })
    }

    #[test]
    fn each_kind_of_server_has_its_variable() {
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
            // An address is no name.
            (
                "https://[1000::1]:123",
                &[("https_proxy", "low:1"), ("NO_PROXY", "1")],
                Some("http://low:1"),
            ),
            ("https://127.0.0.1:6443", &both, None),
            ("https://[::1]:6443", &both, None),
            ("https://localhost:6443", &both, None),
        ] {
            let told = asked(None, server, variables);
            assert_eq!(told.as_deref(), expected, "{server} {variables:?}");
        }
    }

    #[test]
    fn the_kubeconfig_counts_before_the_environment_and_its_exceptions() {
        let variables = [("HTTPS_PROXY", "other:1"), ("NO_PROXY", "*")];
        for server in ["https://a.tld", "https://127.0.0.1:6443"] {
            let told = asked(Some("http://mine:3128"), server, &variables);
            assert_eq!(told.as_deref(), Some("http://mine:3128"));
            assert_eq!(asked(None, server, &variables), None);
            assert_eq!(asked(Some(""), server, &variables), None);
        }
    }

    #[test]
    fn what_is_wrong_says_where() {
        let told = asked(
            None,
            "https://a.tld",
            &[("https_proxy", "ftp://u:hunter2@h")],
        );
        let expected = "https_proxy: unsupported scheme \"ftp\", must be http, https, or socks5";
        assert_eq!(told.as_deref(), Some(expected));
    }
}
