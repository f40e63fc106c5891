//! A pod's status in memory: parsed while the pod changes, its JSON for as long as the pod exists.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A status that is shared by all that know it: cheap to clone, and never changed.
#[derive(Clone)]
pub struct SharedStatus(Arc<SharedStatusInner>);

/// At least one of both is there, and gives the other.
struct SharedStatusInner {
    parsed: OnceLock<Box<PodStatus>>,
    json: OnceLock<EncodedStatus>,
}

/// The JSON of a status.
#[derive(Clone)]
struct EncodedStatus(Arc<RawValue>);

impl AsRef<[u8]> for EncodedStatus {
    fn as_ref(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}

impl SharedStatus {
    /// The first of the known statuses that is equal to this one, which is then not needed; else this one.
    pub(crate) fn shared_with<'a>(self, known: impl IntoIterator<Item = &'a Self>) -> Self {
        let same = known.into_iter().find(|known| **known == self);
        same.cloned().unwrap_or(self)
    }

    /// The same status, which is parsed when it is next read. For pods at rest: the parsed status takes
    /// several times the memory of its JSON.
    pub(crate) fn unparsed(&self) -> Self {
        if !self.is_parsed() {
            return self.clone();
        }
        Self(Arc::new(SharedStatusInner {
            parsed: OnceLock::new(),
            json: OnceLock::from(self.encoded().clone()),
        }))
    }

    /// Whether the parsed status is in memory.
    pub(crate) fn is_parsed(&self) -> bool {
        self.0.parsed.get().is_some()
    }

    /// The JSON, which is not copied.
    pub(crate) fn json(&self) -> Bytes {
        Bytes::from_owner(self.encoded().clone())
    }

    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn encoded(&self) -> &EncodedStatus {
        self.0.json.get_or_init(|| {
            // A status always has a JSON form.
            let json = serde_json::value::to_raw_value(&**self).unwrap_or_default();
            EncodedStatus(json.into())
        })
    }
}

impl From<PodStatus> for SharedStatus {
    fn from(status: PodStatus) -> Self {
        Self(Arc::new(SharedStatusInner {
            parsed: OnceLock::from(Box::new(status)),
            json: OnceLock::new(),
        }))
    }
}

impl Deref for SharedStatus {
    type Target = PodStatus;

    fn deref(&self) -> &PodStatus {
        let json = || self.0.json.get().map(AsRef::as_ref).unwrap_or_default();
        // It was encoded here, so this can fail only if others have changed the file; it is computed anew then.
        let parse = || serde_json::from_slice(json()).unwrap_or_default();
        self.0.parsed.get_or_init(|| Box::new(parse()))
    }
}

impl PartialEq for SharedStatus {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        if let (Some(parsed), Some(other)) = (self.0.parsed.get(), other.0.parsed.get()) {
            return parsed == other;
        }
        // What another build has written may differ in its order alone.
        self.encoded().as_ref() == other.encoded().as_ref() || **self == **other
    }
}

impl fmt::Debug for SharedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for SharedStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.encoded().0.serialize(serializer)
    }
}

/// Not parsed before it is read: a node may have hundreds when it starts.
impl<'de> Deserialize<'de> for SharedStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Arc::new(SharedStatusInner {
            parsed: OnceLock::new(),
            json: OnceLock::from(EncodedStatus(json.into())),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str =
        r#"{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-02T03:04:05Z"}"#;

    fn status() -> SharedStatus {
        let status: PodStatus = serde_json::from_str(JSON).unwrap();
        status.into()
    }

    #[test]
    fn a_status_of_a_file_is_parsed_when_it_is_read() {
        let restored: SharedStatus = serde_json::from_str(JSON).unwrap();
        assert!(!restored.is_parsed());
        assert_eq!(restored.json(), JSON.as_bytes());
        let other_order =
            r#"{"startTime":"2026-01-02T03:04:05Z", "phase":"Running","podIP":"10.0.0.1"}"#;
        let other: SharedStatus = serde_json::from_str(other_order).unwrap();
        assert_eq!(restored, other);
        assert_eq!(restored, status());
        assert!(serde_json::from_str::<SharedStatus>("{").is_err());
        let odd: SharedStatus = serde_json::from_str(r#"{"phase":7}"#).unwrap();
        assert_eq!(*odd, PodStatus::default());
    }

    #[test]
    fn unparsed_statuses_are_equal_and_parsed_when_they_are_read() {
        let parsed = status();
        let unparsed = parsed.unparsed();
        assert_eq!(unparsed, parsed);
        assert_eq!(unparsed, unparsed.unparsed());
        assert!(parsed.is_parsed() && !unparsed.is_parsed());
        let other = SharedStatus::from(PodStatus::default());
        assert_ne!(unparsed, other);
        assert_eq!(unparsed.pod_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(*unparsed, *parsed);
    }

    #[test]
    fn an_equal_status_is_known_once() {
        let (own, other) = (status(), SharedStatus::from(PodStatus::default()));
        let known = [other, own.unparsed()];
        assert!(own.shared_with(&known).is_same(&known[1]));
        let new = status();
        assert!(new.clone().shared_with(&known[..1]).is_same(&new));
    }

    #[test]
    fn the_json_is_written_as_it_is() {
        let value: serde_json::Value = serde_json::from_str(JSON).unwrap();
        let served: serde_json::Value = serde_json::from_slice(&status().json()).unwrap();
        assert_eq!(served, value);
        let written = serde_json::to_string(&status()).unwrap();
        assert_eq!(written.as_bytes(), &*status().json());
    }
}
