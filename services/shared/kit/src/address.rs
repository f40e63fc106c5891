//! The node's own address.

use std::net::{IpAddr, UdpSocket};

use crate::Config;

/// The configured address, or else the one from which this node would reach
/// others; none while it has no network.
pub fn of_node(config: &Config) -> Option<IpAddr> {
    config
        .polylet
        .node_ip
        .or_else(|| toward("0.0.0.0:0", "192.0.2.1:9"))
        .or_else(|| toward("[::]:0", "[2001:db8::1]:9"))
}

/// Asks the routing table: connecting a datagram socket sends nothing.
fn toward(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
