//! What the next process has to know of plugins.

use std::path::Path;

use crate::core::plugin_records::PluginRecords;

const A: &str = "example.com/a";
const B: &str = "example.com/b";

fn sockets(records: &PluginRecords) -> Vec<(&str, &str)> {
    let sockets = records.sockets.iter();
    sockets
        .map(|(resource, path)| (resource.as_str(), path.to_str().unwrap()))
        .collect()
}

#[test]
fn a_socket_is_known_from_the_registration_to_the_end_of_the_connection() {
    let mut records = PluginRecords::default();
    records.on_connected(A, Path::new("a.sock"));
    assert_eq!(sockets(&records), [(A, "a.sock")]);
    assert!(!records.listed.contains(A));
    records.on_listed(A);
    // The plugin has registered again meanwhile.
    records.on_disconnected(A, Path::new("other.sock"));
    assert_eq!(sockets(&records), [(A, "a.sock")]);
    records.on_disconnected(A, Path::new("a.sock"));
    assert!(sockets(&records).is_empty());
    assert!(records.listed.contains(A), "its devices are set up");
    records.retain_listed(|_| true);
    assert!(records.listed.contains(A));
    records.retain_listed(|_| false);
    assert!(records.is_empty());
}

#[test]
fn a_plugin_that_never_listed_devices_leaves_nothing() {
    let mut records = PluginRecords::default();
    records.on_connected(A, Path::new("a.sock"));
    records.on_disconnected(A, Path::new("a.sock"));
    assert!(records.is_empty());
}

#[test]
fn a_socket_is_that_of_one_resource() {
    let mut records = PluginRecords::default();
    records.on_connected(A, Path::new("p.sock"));
    records.on_listed(A);
    records.on_connected(B, Path::new("p.sock"));
    assert_eq!(sockets(&records), [(B, "p.sock")]);
    assert!(records.listed.contains(A) && !records.listed.contains(B));
    // The end of the former connection does not take the socket from the new one.
    records.on_disconnected(A, Path::new("p.sock"));
    assert_eq!(sockets(&records), [(B, "p.sock")]);
}
