//! Settings of several plugins for one container.

use crate::core::run_options::{ContainerRunOptions, DeviceNode, HostMount};

#[test]
fn of_two_settings_for_one_name_the_first_is_used() {
    let options = |value: &str| ContainerRunOptions {
        envs: [("A".to_owned(), value.to_owned())].into(),
        mounts: vec![HostMount {
            container_path: "/m".to_owned(),
            host_path: format!("/{value}"),
            read_only: true,
        }],
        devices: vec![DeviceNode {
            container_path: "/dev/d".to_owned(),
            host_path: "/dev/null".to_owned(),
            permissions: "rw".to_owned(),
        }],
        annotations: [(value.to_owned(), String::new())].into(),
        cdi_devices: vec!["example.com/gpu=a".to_owned()],
    };
    let (joined, conflicts) = ContainerRunOptions::join([&options("1"), &options("2")]);
    let annotations = [
        ("1".to_owned(), String::new()),
        ("2".to_owned(), String::new()),
    ];
    let expected = ContainerRunOptions {
        annotations: annotations.into(),
        ..options("1")
    };
    assert_eq!(joined, expected);
    assert_eq!(conflicts, ["/m", "A"]);
}
