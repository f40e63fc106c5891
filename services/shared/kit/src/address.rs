//! The node's addresses.

mod follow;
mod netlink;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use crate::Config;

pub use follow::follow;

/// Timeout of a lookup of the node's name.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The configured address, or the source address of the default route; `None` without a network.
pub fn node_address(config: &Config) -> Option<IpAddr> {
    let given = config.polylet.node_ip;
    let specified = given.filter(|ip| !ip.is_unspecified());
    specified.or_else(|| default_route_address(prefers_ipv6(given)))
}

/// The addresses that the node reports, the primary one first, in upstream's order: configured ones;
/// a node name that is an address; an address of this machine that the node name resolves to; the
/// source address of the default route.
async fn by_name(given: Option<IpAddr>, second: Option<IpAddr>, name: &str) -> Vec<IpAddr> {
    let ipv6 = prefers_ipv6(given);
    let given = given.filter(|ip| !ip.is_unspecified());
    let first = match given.or_else(|| name.parse().ok()) {
        Some(known) => Some(known),
        None => {
            let resolved = tokio::net::lookup_host((name, 0));
            let found = tokio::time::timeout(RESOLVER_TIMEOUT, resolved).await;
            let found = found.ok().and_then(Result::ok).into_iter().flatten();
            let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            let own = choose(&found, ipv6, is_reachable);
            own.or_else(|| default_route_address(ipv6))
        }
    };
    first.into_iter().chain(second).collect()
}

/// An unspecified address selects the family; the default is IPv4.
fn prefers_ipv6(given: Option<IpAddr>) -> bool {
    given.is_some_and(|ip| ip.is_ipv6())
}

/// The first usable address of the family, or else the first usable one.
fn choose(found: &[IpAddr], ipv6: bool, is_usable: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let usable: Vec<IpAddr> = found.iter().copied().filter(|ip| is_usable(*ip)).collect();
    let preferred = usable.iter().find(|ip| ip.is_ipv6() == ipv6);
    preferred.or(usable.first()).copied()
}

/// Whether this machine has the address and others can reach it.
fn is_reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let is_local = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local;
    // Only an address of an interface can be bound.
    !is_local && UdpSocket::bind((ip, 0)).is_ok()
}

fn default_route_address(ipv6: bool) -> Option<IpAddr> {
    let ipv4 = || {
        source_address(
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        )
    };
    let documented = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let ipv6_source = || source_address(Ipv6Addr::UNSPECIFIED.into(), documented.into());
    if ipv6 {
        ipv6_source().or_else(ipv4)
    } else {
        ipv4().or_else(ipv6_source)
    }
}

/// The source address of the route to `to`: connecting a datagram socket sends nothing.
fn source_address(from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_selected_family() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let found = [ip("127.0.0.1"), ip("2001:db8::7"), ip("192.0.2.7")];
        let ours = |ip: IpAddr| !ip.is_loopback();
        assert_eq!(choose(&found, false, ours), Some(ip("192.0.2.7")));
        assert_eq!(choose(&found, true, ours), Some(ip("2001:db8::7")));
        assert_eq!(choose(&found[..2], false, ours), Some(ip("2001:db8::7")));
        assert_eq!(choose(&found[..1], false, ours), None);
        assert!(!is_reachable(ip("127.0.0.1")) && !is_reachable(ip("192.0.2.7")));
    }

    #[tokio::test]
    async fn configured_addresses_come_first() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        let (ipv4, ipv6) = (ip("192.0.2.7"), ip("2001:db8::7"));
        let both: Vec<IpAddr> = ipv4.into_iter().chain(ipv6).collect();
        assert_eq!(by_name(ipv4, ipv6, "n1").await, both);
        assert_eq!(by_name(None, None, "192.0.2.7").await, both[..1]);
    }
}
