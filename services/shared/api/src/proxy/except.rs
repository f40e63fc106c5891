//! Which servers are reached without the proxy of the environment: the rules of `NO_PROXY` that Go's
//! programs have. (curl's differ: there no port counts, and a leading dot says nothing.)

use std::net::IpAddr;

/// Whether this server is reached without a proxy. `list` is what `NO_PROXY` says: addresses,
/// networks (`10.0.0.0/8`), names (`example.com` and all below it, `.example.com` and `*.example.com`
/// only what is below), all but networks with a port if only that one is meant, and `*` for all.
/// Entries that are none of these are left out. This machine itself is never reached by a proxy.
pub(super) fn excepted(list: &str, host: &str, port: u16) -> bool {
    // An address in brackets is no name, whatever is in them.
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse::<IpAddr>().ok();
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
        if let Some((network, bits)) = network(&entry) {
            return address.is_some_and(|address| within(address, network, bits));
        }
        let (name, only) = with_port(&entry).unwrap_or((&entry, ""));
        let meant = only.is_empty() || only.parse() == Ok(port);
        let hit = match (name.parse::<IpAddr>(), address) {
            (Ok(name), Some(address)) => name.to_canonical() == address,
            (Err(_), None) if bare.is_none() => below(&host, name),
            _ => false,
        };
        hit && meant
    })
}

/// Whether a name is the one meant, or below it.
fn below(host: &str, name: &str) -> bool {
    let only_below = name.strip_prefix('*').filter(|rest| rest.starts_with('.'));
    let name = only_below.unwrap_or(name);
    if name.is_empty() {
        return false;
    }
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => {
            let rest = host.strip_suffix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

/// Host and port of an entry that has one. An address of version 6 needs brackets for it.
fn with_port(entry: &str) -> Option<(&str, &str)> {
    let (host, port) = entry.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(rest) => Some((rest.strip_suffix(']')?, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
    }
}

/// A network, by address and length.
fn network(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (digits && bits <= most).then_some((address, bits))
}

fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    if address.is_ipv4() != network.is_ipv4() {
        return false;
    }
    let wide = |address: IpAddr| match address {
        IpAddr::V4(four) => u128::from(u32::from(four)) << 96,
        IpAddr::V6(six) => u128::from(six),
    };
    let differ = wide(address) ^ wide(network);
    bits == 0 || differ.leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's table, for a server on port 80.
    #[test]
    fn exceptions_as_in_go() {
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
            assert_eq!(!excepted(list, host, 80), proxied, "{host}");
            assert!(excepted("*", host, 80) && excepted("x, * ,y", host, 80));
        }
    }

    #[test]
    fn entries_one_by_one() {
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
            assert_eq!(excepted(entry, host, 80), without, "{entry:?} {host}");
        }
    }
}
