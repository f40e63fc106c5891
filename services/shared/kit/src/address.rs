//! The node's own addresses.

mod follow;
mod news;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use crate::Config;

pub use follow::follow;

/// A resolver that takes longer knows nothing of this node.
const RESOLVER: Duration = Duration::from_secs(5);

/// The configured address, or else the one from which this node would reach
/// others; none while it has no network.
pub fn of_node(config: &Config) -> Option<IpAddr> {
    let given = config.polylet.node_ip;
    let specified = given.filter(|ip| !ip.is_unspecified());
    specified.or_else(|| routed(prefers_six(given)))
}

/// The addresses that the node tells, the primary one first, as upstream finds them: those it was
/// given; a name that is one; what the resolver says of its name, as long as this machine has it; the
/// one of the default route.
async fn by_name(given: Option<IpAddr>, second: Option<IpAddr>, name: &str) -> Vec<IpAddr> {
    let six = prefers_six(given);
    let given = given.filter(|ip| !ip.is_unspecified());
    let first = match given.or_else(|| name.parse().ok()) {
        Some(known) => Some(known),
        None => {
            let resolved = tokio::net::lookup_host((name, 0));
            let found = tokio::time::timeout(RESOLVER, resolved).await;
            let found = found.ok().and_then(Result::ok).into_iter().flatten();
            let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            let own = choose(&found, six, is_ours);
            own.or_else(|| routed(six))
        }
    };
    first.into_iter().chain(second).collect()
}

/// An unspecified address says which family is meant; IPv4 is, where nothing is said.
fn prefers_six(given: Option<IpAddr>) -> bool {
    given.is_some_and(|ip| ip.is_ipv6())
}

/// The first of the family that is meant, or else the first.
fn choose(found: &[IpAddr], six: bool, ours: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let usable: Vec<IpAddr> = found.iter().copied().filter(|ip| ours(*ip)).collect();
    let meant = usable.iter().find(|ip| ip.is_ipv6() == six);
    meant.or(usable.first()).copied()
}

/// Whether others can reach this machine by an address.
fn is_ours(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let of_none = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local;
    // Only an address of an interface can be taken.
    !of_none && UdpSocket::bind((ip, 0)).is_ok()
}

fn routed(six: bool) -> Option<IpAddr> {
    let four = || {
        toward(
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        )
    };
    let documented = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let other = || toward(Ipv6Addr::UNSPECIFIED.into(), documented.into());
    if six {
        other().or_else(four)
    } else {
        four().or_else(other)
    }
}

/// Asks the routing table: connecting a datagram socket sends nothing.
fn toward(from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_family_that_is_meant() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let found = [ip("127.0.0.1"), ip("2001:db8::7"), ip("192.0.2.7")];
        let ours = |ip: IpAddr| !ip.is_loopback();
        assert_eq!(choose(&found, false, ours), Some(ip("192.0.2.7")));
        assert_eq!(choose(&found, true, ours), Some(ip("2001:db8::7")));
        assert_eq!(choose(&found[..2], false, ours), Some(ip("2001:db8::7")));
        assert_eq!(choose(&found[..1], false, ours), None);
        assert!(!is_ours(ip("127.0.0.1")) && !is_ours(ip("192.0.2.7")));
    }

    #[tokio::test]
    async fn what_is_given_stands() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        let (four, six) = (ip("192.0.2.7"), ip("2001:db8::7"));
        let both: Vec<IpAddr> = four.into_iter().chain(six).collect();
        assert_eq!(by_name(four, six, "n1").await, both);
        assert_eq!(by_name(None, None, "192.0.2.7").await, both[..1]);
    }
}
