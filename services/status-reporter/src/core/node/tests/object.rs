//! The Node object: its creation and corrections.

use jiff::SignedDuration;

use super::super::object::Registration;
use super::super::patch;
use super::super::report_schedule::{ReportDecision, ReportInterval, ReportSchedule};
use super::*;

#[test]
fn object_is_created_and_corrected() {
    let registration = Registration {
        name: "n1".to_owned(),
        labels: polylet_model::node::initial_labels(
            "n1",
            "amd64",
            &[("shelf".to_owned(), "3".to_owned())].into(),
        ),
        provider_id: "bare://n1".to_owned(),
        external_cloud: true,
        provided_ips: vec!["192.0.2.7".to_owned()],
        ..Registration::default()
    };
    let made = registration.object(NodeStatus::default());
    assert_eq!(registration.corrections(&made), None);
    let object = serde_json::to_value(&made).unwrap();
    assert_eq!(
        object["metadata"]["labels"]["beta.kubernetes.io/arch"],
        "amd64"
    );
    assert_eq!(
        object["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"],
        "192.0.2.7"
    );
    assert_eq!(object["spec"]["providerID"], "bare://n1");
    assert_eq!(
        object["spec"]["taints"][0]["key"],
        "node.cloudprovider.kubernetes.io/uninitialized"
    );

    let current: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {
        "kubernetes.io/hostname": "other", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "theirs": "x"}}}))
    .unwrap();
    let expected = json!({"metadata": {
        "labels": {"kubernetes.io/hostname": "n1", "beta.kubernetes.io/arch": "amd64"},
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true",
            "alpha.kubernetes.io/provided-node-ip": "192.0.2.7"}}});
    assert_eq!(registration.corrections(&current), Some(expected));
    let plain = Registration {
        external_cloud: false,
        ..registration
    };
    let off = json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": null}}});
    assert_eq!(plain.corrections(&made), Some(off));
}

#[test]
fn scheduling_labels_are_reconciled() {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let registration = Registration {
        labels: BTreeMap::from([
            label("kubernetes.io/arch", "amd64"),
            label("kubernetes.io/os", "linux"),
            label("kubernetes.io/hostname", "n1"),
        ]),
        ..Registration::default()
    };
    let mut current = Node::default();
    current.metadata.labels = Some(BTreeMap::from([
        label("kubernetes.io/arch", "arm64"),
        label("kubernetes.io/os", "linux"),
    ]));
    let wrong = registration.outdated_labels(&current);
    assert_eq!(json!(wrong), json!({"kubernetes.io/arch": "amd64"}));
    let none = NodeStatus::default();
    let patch = patch::status(&none, &none, &wrong);
    assert_eq!(patch["metadata"]["labels"]["kubernetes.io/arch"], "amd64");
    current.metadata.labels = Some(registration.labels.clone());
    assert!(registration.outdated_labels(&current).is_empty());

    // Removed labels are written at the batch interval only.
    let second = SignedDuration::from_secs(1);
    let mut schedule = ReportSchedule::new(ReportInterval {
        batch: second * 10,
        report: second * 300,
    });
    schedule.on_written(false, 0.5, at(0));
    let (now, later) = (at(1), at(11));
    assert_eq!(
        schedule.decide(&none, &none, true, now),
        ReportDecision::Wait(later)
    );
    assert_eq!(
        schedule.decide(&none, &none, true, later),
        ReportDecision::Write
    );
}
