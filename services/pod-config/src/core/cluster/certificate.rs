//! Pod certificates: the PodCertificateRequest, its outcome, and when it is repeated. Rules, event
//! reasons and messages are the kubelet's.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

/// Upper limit of the refresh jitter.
const REFRESH_JITTER: SignedDuration = SignedDuration::from_mins(5);
/// Delay after which an overdue refresh is reported.
const OVERDUE: SignedDuration = SignedDuration::from_mins(10);

/// The `podCertificate` source of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DesiredCertificate {
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Service account of the pod.
    pub account: String,
    /// Name of the projected volume.
    pub volume: String,
    /// Index of the source in the volume.
    pub source_index: u32,
    /// Signer name.
    pub signer: String,
    /// Key type, such as `ED25519`.
    pub key_type: String,
    /// Longest validity in seconds; 0 is the API server's default.
    pub max_expiration_seconds: i32,
    /// Unverified user annotations for the signer.
    pub annotations: BTreeMap<String, String>,
}

/// Identities of the node and the service account at the time of the request.
#[derive(Clone, Copy, Debug)]
pub struct RequestIdentity<'a> {
    /// Node name.
    pub node: &'a str,
    /// Uid of the Node object.
    pub node_uid: &'a str,
    /// Uid of the service account.
    pub account_uid: &'a str,
}

/// The PodCertificateRequest; `stub` is a PKCS#10 request that proves possession of the key.
pub fn request(desired: &DesiredCertificate, identity: RequestIdentity<'_>, stub: &str) -> Value {
    let mut spec = json!({
        "signerName": desired.signer,
        "podName": desired.pod,
        "podUID": desired.uid,
        "serviceAccountName": desired.account,
        "serviceAccountUID": identity.account_uid,
        "nodeName": identity.node,
        "nodeUID": identity.node_uid,
        "stubPKCS10Request": stub,
    });
    if let Some(fields) = spec.as_object_mut() {
        if desired.max_expiration_seconds > 0 {
            let seconds = desired.max_expiration_seconds.into();
            fields.insert("maxExpirationSeconds".to_owned(), seconds);
        }
        if !desired.annotations.is_empty() {
            let annotations = json!(desired.annotations);
            fields.insert("unverifiedUserAnnotations".to_owned(), annotations);
        }
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": desired.namespace,
            "generateName": "req-",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": desired.pod, "uid": desired.uid},
            ],
        },
        "spec": spec,
    })
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateOutcome {
    /// A certificate was issued.
    Issued(SignedCertificate),
    /// The request failed for good.
    Failed(CertificateFailure),
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCertificate {
    /// Certificate chain as PEM, leaf first.
    pub chain: String,
    /// When the signer expects the next request.
    pub begin_refresh_at: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
}

/// A permanent failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFailure {
    /// Condition type: `Denied` or `Failed`.
    pub condition: &'static str,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

impl CertificateFailure {
    /// The message for the pod's volume.
    pub fn wait_message(&self) -> String {
        let how = self.condition.to_lowercase();
        let (reason, message) = (&self.reason, &self.message);
        format!(
            "PodCertificateRequest was permanently {how}: reason={reason:?} message={message:?}"
        )
    }

    /// The event's message; `name` is `namespace/name`.
    pub fn event_message(&self, name: &str) -> String {
        let how = match self.condition {
            "Denied" => "was denied",
            _ => "failed",
        };
        let (reason, message) = (&self.reason, &self.message);
        format!("PodCertificateRequest {name} {how}, reason={reason:?}, message={message:?}")
    }
}

#[derive(Deserialize)]
struct RequestObject {
    #[serde(default)]
    status: RequestStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RequestStatus {
    conditions: Vec<RequestCondition>,
    certificate_chain: String,
    begin_refresh_at: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestCondition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// The outcome of a request; `None` while it is pending.
pub fn outcome(request: Value) -> Option<CertificateOutcome> {
    let status = serde_json::from_value::<RequestObject>(request)
        .ok()?
        .status;
    let failed = |condition_type, condition: &RequestCondition| {
        CertificateOutcome::Failed(CertificateFailure {
            condition: condition_type,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        })
    };
    status
        .conditions
        .iter()
        .find_map(|condition| match condition.kind.as_str() {
            "Denied" => Some(failed("Denied", condition)),
            "Failed" => Some(failed("Failed", condition)),
            "Issued" => {
                let not_after = status.not_after.unwrap_or(Timestamp::MAX);
                Some(CertificateOutcome::Issued(SignedCertificate {
                    chain: status.certificate_chain.clone(),
                    begin_refresh_at: status.begin_refresh_at.unwrap_or(not_after),
                    not_after,
                }))
            }
            _ => None,
        })
}

/// Refresh and expiry of an issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateAge {
    /// When the next certificate is requested.
    pub refresh_at: Timestamp,
    not_after: Timestamp,
    emitted: usize,
}

impl CertificateAge {
    /// The age of a new certificate. `jitter` is between 0 and 1.
    pub fn new(issued: &SignedCertificate, jitter: f64) -> CertificateAge {
        let jitter = REFRESH_JITTER.as_secs_f64() * jitter.clamp(0.0, 1.0);
        let jitter = SignedDuration::from_millis((jitter * 1000.0) as i64);
        CertificateAge {
            refresh_at: saturating_add(issued.begin_refresh_at, jitter),
            not_after: issued.not_after,
            emitted: 0,
        }
    }

    /// Events that are due and were not returned before: reason and message.
    pub fn due_events(&mut self, now: Timestamp) -> Vec<(&'static str, &'static str)> {
        let mut all = self.milestones();
        all.sort_by_key(|(at, ..)| *at);
        let passed = all.iter().filter(|(at, ..)| *at < now).count();
        let due = all.get(self.emitted..passed).unwrap_or_default();
        self.emitted = self.emitted.max(passed);
        due.iter()
            .map(|(_, reason, message)| (*reason, *message))
            .collect()
    }

    /// When the next event is due.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        let mut all = self.milestones().map(|(at, ..)| at);
        all.sort();
        all.get(self.emitted).copied()
    }

    fn milestones(&self) -> [(Timestamp, &'static str, &'static str); 2] {
        let overdue = saturating_add(self.refresh_at, OVERDUE);
        [
            (
                overdue,
                "CertificateOverdueForRefresh",
                "PodCertificate refresh overdue",
            ),
            (
                self.not_after,
                "CertificateExpired",
                "PodCertificate expired",
            ),
        ]
    }
}

fn saturating_add(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn with(condition: &str) -> Value {
        json!({"status": {
            "conditions": [{"type": condition, "status": "True", "reason": "Why", "message": "a \"b\""}],
            "certificateChain": "chain",
            "beginRefreshAt": "1970-01-01T00:10:00Z", "notAfter": "1970-01-01T01:00:00Z",
        }})
    }

    #[test]
    fn request_has_identity_and_options() {
        let mut desired = DesiredCertificate {
            uid: "u".into(),
            namespace: "ns".into(),
            pod: "web".into(),
            account: "sa".into(),
            signer: "example.com/s".into(),
            ..DesiredCertificate::default()
        };
        let identity = RequestIdentity {
            node: "n",
            node_uid: "nu",
            account_uid: "au",
        };
        let request_object = request(&desired, identity, "c3R1Yg==");
        assert_eq!(request_object["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(request_object["spec"]["serviceAccountUID"], "au");
        assert_eq!(request_object["spec"].get("maxExpirationSeconds"), None);
        desired.max_expiration_seconds = 3600;
        desired.annotations = [("a".to_owned(), "b".to_owned())].into();
        let request_object = request(&desired, identity, "c3R1Yg==");
        assert_eq!(request_object["spec"]["maxExpirationSeconds"], 3600);
        assert_eq!(
            request_object["spec"]["unverifiedUserAnnotations"]["a"],
            "b"
        );
    }

    #[test]
    fn outcome_follows_the_conditions() {
        assert_eq!(outcome(json!({"spec": {}})), None);
        assert_eq!(outcome(with("Later")), None);
        let issued = SignedCertificate {
            chain: "chain".into(),
            begin_refresh_at: at(600),
            not_after: at(3600),
        };
        assert_eq!(
            outcome(with("Issued")),
            Some(CertificateOutcome::Issued(issued))
        );
        for (condition, wait_message, event_message) in [
            (
                "Denied",
                r#"PodCertificateRequest was permanently denied: reason="Why" message="a \"b\"""#,
                r#"PodCertificateRequest ns/r was denied, reason="Why", message="a \"b\"""#,
            ),
            (
                "Failed",
                r#"PodCertificateRequest was permanently failed: reason="Why" message="a \"b\"""#,
                r#"PodCertificateRequest ns/r failed, reason="Why", message="a \"b\"""#,
            ),
        ] {
            let Some(CertificateOutcome::Failed(failure)) = outcome(with(condition)) else {
                panic!("{condition}")
            };
            assert_eq!(failure.wait_message(), wait_message);
            assert_eq!(failure.event_message("ns/r"), event_message);
        }
    }

    #[test]
    fn age_events_are_due_once() {
        let issued = SignedCertificate {
            chain: String::new(),
            begin_refresh_at: at(600),
            not_after: at(3600),
        };
        let mut age = CertificateAge::new(&issued, 0.0);
        assert_eq!(
            (age.refresh_at, age.next_event_at()),
            (at(600), Some(at(1200)))
        );
        assert_eq!(CertificateAge::new(&issued, 1.0).refresh_at, at(900));
        assert_eq!(age.due_events(at(1200)), []);
        assert_eq!(
            age.due_events(at(1201))[0].0,
            "CertificateOverdueForRefresh"
        );
        assert_eq!(
            (age.due_events(at(1300)), age.next_event_at()),
            (vec![], Some(at(3600)))
        );
        assert_eq!(age.due_events(at(4000))[0].0, "CertificateExpired");
        assert_eq!(
            (age.due_events(at(9999)), age.next_event_at()),
            (vec![], None)
        );
        assert_eq!(
            CertificateAge::new(&issued, 0.0).due_events(at(9999)).len(),
            2
        );
    }

    proptest! {
        #[test]
        fn refresh_jitter_is_at_most_five_minutes(jitter in -1.0f64..2.0, begin in 0i64..1_000_000) {
            let issued = SignedCertificate {
                chain: String::new(),
                begin_refresh_at: at(begin),
                not_after: at(begin + 600),
            };
            let refresh = CertificateAge::new(&issued, jitter).refresh_at;
            prop_assert!(refresh >= at(begin) && refresh <= at(begin + 300));
        }
    }
}
