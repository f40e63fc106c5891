//! The node's own address.

use std::net::{IpAddr, UdpSocket};

use polylet_kit::Ctx;

/// The configured address, or else the one from which this node would reach
/// others; none while it has no network.
pub(crate) fn of_node(ctx: &Ctx) -> Vec<String> {
    let configured = ctx.config().polylet.node_ip;
    let found = configured
        .or_else(|| toward("0.0.0.0:0", "192.0.2.1:9"))
        .or_else(|| toward("[::]:0", "[2001:db8::1]:9"));
    found.into_iter().map(|ip| ip.to_string()).collect()
}

/// Asks the routing table: connecting a datagram socket sends nothing.
fn toward(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
