//! Certificates of pods: what is asked for, what came of it, and when it is asked for anew. Rules and
//! words are upstream's.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

/// By how much asking anew is spread.
const SPREAD: SignedDuration = SignedDuration::from_mins(5);
/// So long after it should have begun, people are told of a renewal that has not come.
const OVERDUE: SignedDuration = SignedDuration::from_mins(10);

/// What a certificate is asked for with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The pod's uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its service account.
    pub account: String,
    /// The projected volume, and the place of the source in it.
    pub place: (String, u32),
    /// Who signs.
    pub signer: String,
    /// What kind of key.
    pub key_type: String,
    /// How long it may live at most, in seconds; 0 leaves that to the API server.
    pub max_expiration_seconds: i32,
    /// What the user tells the signer.
    pub annotations: BTreeMap<String, String>,
}

/// Names and uids at the time of asking.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// This node's name.
    pub node: &'a str,
    /// The Node's uid.
    pub node_uid: &'a str,
    /// The service account's uid.
    pub account_uid: &'a str,
}

/// The PodCertificateRequest; `stub` is a PKCS#10 request that shows who holds the key.
pub fn request(of: &Wanted, by: Asking<'_>, stub: &str) -> Value {
    let mut spec = json!({
        "signerName": of.signer,
        "podName": of.pod,
        "podUID": of.uid,
        "serviceAccountName": of.account,
        "serviceAccountUID": by.account_uid,
        "nodeName": by.node,
        "nodeUID": by.node_uid,
        "stubPKCS10Request": stub,
    });
    if of.max_expiration_seconds > 0 {
        spec["maxExpirationSeconds"] = of.max_expiration_seconds.into();
    }
    if !of.annotations.is_empty() {
        spec["unverifiedUserAnnotations"] = json!(of.annotations);
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": of.namespace,
            "generateName": "req-",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": of.pod, "uid": of.uid},
            ],
        },
        "spec": spec,
    })
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A certificate.
    Issued(Issued),
    /// Never a certificate.
    Refused(Refused),
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// It, and those that lead up from it, as PEM.
    pub chain: String,
    /// From when on the signer wants to be asked for another.
    pub begin_refresh_at: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The condition: `Denied` or `Failed`.
    pub condition: &'static str,
    /// The signer's reason.
    pub reason: String,
    /// The signer's words.
    pub message: String,
}

impl Refused {
    /// What a pod waits for in vain.
    pub fn waits(&self) -> String {
        let how = self.condition.to_lowercase();
        let (reason, message) = (&self.reason, &self.message);
        format!(
            "PodCertificateRequest was permanently {how}: reason={reason:?} message={message:?}"
        )
    }

    /// What an event says of it; `name` with its namespace.
    pub fn told(&self, name: &str) -> String {
        let how = match self.condition {
            "Denied" => "was denied",
            _ => "failed",
        };
        let (reason, message) = (&self.reason, &self.message);
        format!("PodCertificateRequest {name} {how}, reason={reason:?}, message={message:?}")
    }
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    certificate_chain: String,
    begin_refresh_at: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// What came of a request; nothing while it is pending.
pub fn outcome(request: Value) -> Option<Outcome> {
    let status = serde_json::from_value::<Written>(request).ok()?.status;
    let refused = |condition, of: &Condition| {
        Outcome::Refused(Refused {
            condition,
            reason: of.reason.clone(),
            message: of.message.clone(),
        })
    };
    status
        .conditions
        .iter()
        .find_map(|of| match of.kind.as_str() {
            "Denied" => Some(refused("Denied", of)),
            "Failed" => Some(refused("Failed", of)),
            "Issued" => {
                let not_after = status.not_after.unwrap_or(Timestamp::MAX);
                Some(Outcome::Issued(Issued {
                    chain: status.certificate_chain.clone(),
                    begin_refresh_at: status.begin_refresh_at.unwrap_or(not_after),
                    not_after,
                }))
            }
            _ => None,
        })
}

/// How a certificate that a pod has ages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// From then on another is asked for.
    pub refresh_at: Timestamp,
    not_after: Timestamp,
    told: usize,
}

impl Age {
    /// Of a new one. `jitter` is between 0 and 1.
    pub fn of(issued: &Issued, jitter: f64) -> Age {
        let spread = SPREAD.as_secs_f64() * jitter.clamp(0.0, 1.0);
        let spread = SignedDuration::from_millis((spread * 1000.0) as i64);
        Age {
            refresh_at: later(issued.begin_refresh_at, spread),
            not_after: issued.not_after,
            told: 0,
        }
    }

    /// What people are to be told by now, once: the event's reason and words.
    pub fn due(&mut self, now: Timestamp) -> Vec<(&'static str, &'static str)> {
        let mut all = self.milestones();
        all.sort_by_key(|(at, ..)| *at);
        let come = all.iter().filter(|(at, ..)| *at < now).count();
        let due = all.get(self.told..come).unwrap_or_default();
        self.told = self.told.max(come);
        due.iter()
            .map(|(_, reason, words)| (*reason, *words))
            .collect()
    }

    /// When there is something to tell next.
    pub fn next(&self) -> Option<Timestamp> {
        let mut all = self.milestones().map(|(at, ..)| at);
        all.sort();
        all.get(self.told).copied()
    }

    fn milestones(&self) -> [(Timestamp, &'static str, &'static str); 2] {
        let overdue = later(self.refresh_at, OVERDUE);
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

fn later(from: Timestamp, by: SignedDuration) -> Timestamp {
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
    fn what_is_asked_for() {
        let mut of = Wanted {
            uid: "u".into(),
            namespace: "ns".into(),
            pod: "web".into(),
            account: "sa".into(),
            signer: "example.com/s".into(),
            ..Wanted::default()
        };
        let by = Asking {
            node: "n",
            node_uid: "nu",
            account_uid: "au",
        };
        let asked = request(&of, by, "c3R1Yg==");
        assert_eq!(asked["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(asked["spec"]["serviceAccountUID"], "au");
        assert_eq!(asked["spec"].get("maxExpirationSeconds"), None);
        of.max_expiration_seconds = 3600;
        of.annotations = [("a".to_owned(), "b".to_owned())].into();
        let asked = request(&of, by, "c3R1Yg==");
        assert_eq!(asked["spec"]["maxExpirationSeconds"], 3600);
        assert_eq!(asked["spec"]["unverifiedUserAnnotations"]["a"], "b");
    }

    #[test]
    fn what_comes_of_it() {
        assert_eq!(outcome(json!({"spec": {}})), None);
        assert_eq!(outcome(with("Later")), None);
        let issued = Issued {
            chain: "chain".into(),
            begin_refresh_at: at(600),
            not_after: at(3600),
        };
        assert_eq!(outcome(with("Issued")), Some(Outcome::Issued(issued)));
        for (condition, waits, told) in [
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
            let Some(Outcome::Refused(refused)) = outcome(with(condition)) else {
                panic!("{condition}")
            };
            assert_eq!(refused.waits(), waits);
            assert_eq!(refused.told("ns/r"), told);
        }
    }

    #[test]
    fn people_are_told_once_of_what_ages() {
        let issued = Issued {
            chain: String::new(),
            begin_refresh_at: at(600),
            not_after: at(3600),
        };
        let mut age = Age::of(&issued, 0.0);
        assert_eq!((age.refresh_at, age.next()), (at(600), Some(at(1200))));
        assert_eq!(Age::of(&issued, 1.0).refresh_at, at(900));
        assert_eq!(age.due(at(1200)), []);
        assert_eq!(age.due(at(1201))[0].0, "CertificateOverdueForRefresh");
        assert_eq!((age.due(at(1300)), age.next()), (vec![], Some(at(3600))));
        assert_eq!(age.due(at(4000))[0].0, "CertificateExpired");
        assert_eq!((age.due(at(9999)), age.next()), (vec![], None));
        assert_eq!(Age::of(&issued, 0.0).due(at(9999)).len(), 2);
    }

    proptest! {
        #[test]
        fn asked_anew_within_five_minutes(jitter in -1.0f64..2.0, begin in 0i64..1_000_000) {
            let issued = Issued {
                chain: String::new(),
                begin_refresh_at: at(begin),
                not_after: at(begin + 600),
            };
            let refresh = Age::of(&issued, jitter).refresh_at;
            prop_assert!(refresh >= at(begin) && refresh <= at(begin + 300));
        }
    }
}
