//! `NO_PROXY` by the rules of Go's `golang.org/x/net/http/httpproxy`.
//!
//! The matcher of `hyper_util::client::proxy` follows curl instead, which ignores ports and leading
//! dots: some servers that kubelets reach directly would be reached through the proxy.

use std::net::IpAddr;

/// Whether this server is reached without a proxy. `list` is the value of `NO_PROXY`: addresses,
/// networks (`10.0.0.0/8`), domains (`example.com` with its subdomains; `.example.com` and
/// `*.example.com` for the subdomains alone), and `*` for all servers. Addresses and domains may
/// have a port. Invalid entries are ignored. Loopback addresses never use a proxy.
pub(super) fn matches(list: &str, host: &str, port: u16) -> bool {
    // A host in brackets is an address, never a domain.
    let unbracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = unbracketed.unwrap_or(host).parse::<IpAddr>().ok();
    let address = address.map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let host = host.to_ascii_lowercase();
    let entries = list.split(',').map(|entry| entry.trim().to_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = parse_network(&entry) {
            return address.is_some_and(|address| network_contains(address, network, bits));
        }
        let (name, entry_port) = split_port(&entry).unwrap_or((&entry, ""));
        let port_matches = entry_port.is_empty() || entry_port.parse() == Ok(port);
        let host_matches = match (name.parse::<IpAddr>(), address) {
            (Ok(name), Some(address)) => name.to_canonical() == address,
            (Err(_), None) if unbracketed.is_none() => matches_domain(&host, name),
            _ => false,
        };
        host_matches && port_matches
    })
}

/// Whether a host is in the domain of an entry.
fn matches_domain(host: &str, entry: &str) -> bool {
    let wildcard = entry.strip_prefix('*').filter(|rest| rest.starts_with('.'));
    let entry = wildcard.unwrap_or(entry);
    if entry.is_empty() {
        return false;
    }
    match entry.strip_prefix('.') {
        Some(_) => host.ends_with(entry),
        None => {
            let rest = host.strip_suffix(entry);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

/// Host and port of an entry with a port. IPv6 addresses need brackets for one.
fn split_port(entry: &str) -> Option<(&str, &str)> {
    let (host, port) = entry.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(rest) => Some((rest.strip_suffix(']')?, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
    }
}

/// Address and prefix length of a network.
fn parse_network(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
    let max = if address.is_ipv4() { 32 } else { 128 };
    (digits && bits <= max).then_some((address, bits))
}

fn network_contains(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    if address.is_ipv4() != network.is_ipv4() {
        return false;
    }
    let to_bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    let difference = to_bits(address) ^ to_bits(network);
    bits == 0 || difference.leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of Go's `TestUseProxy`, for a server on port 80.
    #[test]
    fn hosts_are_matched_as_in_go() {
        let list = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, \
                    192.168.1.3:80, 10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, \
                    [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
        for (host, proxied) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("127.0.0.2", false),
            ("[::1]", false),
            ("[::2]", true),
            ("192.168.1.1", false),
            ("192.168.1.2", true),
            ("192.168.1.3", false),
            ("192.168.1.4", true),
            ("10.0.0.2", false),
            ("10.0.0.4", true),
            ("[2001:db8::52:0:1]", false),
            ("[2001:db8::52:0:2]", true),
            ("[2001:db8::52:0:3]", false),
            ("[2002:db8:a::123]", false),
            ("[2002:db8:b::123]", true),
            ("[fe80::424b:c8be:1643:a1b6]", true),
            ("[::ffff:10.0.0.2]", false),
            ("[::ffff:127.0.0.1]", false),
            ("barbaz.net", true),
            ("www.barbaz.net", false),
            ("foobar.com", false),
            ("FooBar.com", false),
            ("www.foobar.com", false),
            ("foofoobar.com", true),
            ("baz.com", true),
            ("localhost.net", true),
            ("local.localhost", true),
            ("barbarbaz.net", true),
            ("wildcard.io", true),
            ("nested.wildcard.io", false),
            ("awildcard.io", true),
        ] {
            assert_eq!(!matches(list, host, 80), proxied, "{host}");
            assert!(matches("*", host, 80) && matches("x, * ,y", host, 80));
        }
    }

    #[test]
    fn single_entries() {
        for (entry, host, without) in [
            ("example.com", "example.com", true),
            (".example.com", "example.com", false),
            ("ample.com", "example.com", false),
            ("example.com", "foo.example.com", true),
            (".foo.com", "example.com", false),
            ("example.com:80", "example.com", true),
            ("example.com:", "example.com", true),
            ("example.com:443", "example.com", false),
            ("*.example.com:80", "a.example.com", true),
            ("*example.com", "a.example.com", false),
            ("1.2.3.4/0", "9.9.9.9", true),
            ("1.2.3.4/33", "1.2.3.4", false),
            ("1.2.3.4/+8", "1.2.3.4", false),
            ("1.2.3", "1.2.3.4", false),
            ("3.4", "1.2.3.4", false),
            ("[::2]", "[::2]", false),
            (":1", "example.com", false),
            (":", "example.com", false),
            (",,", "example.com", false),
            (".", "example.com", false),
            ("*.", "example.com", false),
            ("", "example.com", false),
            ("xn--fsq092h.com", "www.xn--fsq092h.com", true),
        ] {
            assert_eq!(matches(entry, host, 80), without, "{entry:?} {host}");
        }
    }
}
