//! User namespaces of pods: which part of the node's user ids each pod is given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Ranges come in multiples of this.
pub const UNIT: u32 = 65_536;
/// The first id that is given away unless the node says otherwise: those of people and of the
/// system come before it.
const FIRST: u32 = UNIT;

/// Ids of the node that stand for 0 and up in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// What 0 in the pod is on the node.
    pub first: u32,
    /// How many ids.
    pub length: u32,
}

/// Why ids cannot be given to a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernsError {
    /// All ranges are taken.
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    /// The kept file is not what was written.
    #[error("invalid user namespace mappings file: {0}")]
    File(String),
    /// The kept range is not one of this node's.
    #[error("wrong user namespace length {length} or offset specified {first}")]
    Foreign {
        /// Its first id.
        first: u32,
        /// Its length.
        length: u32,
    },
    /// Two pods would have one range.
    #[error("range picked for pod {0:?} already taken")]
    Taken(String),
    /// The node's own share of ids cannot be cut into ranges.
    #[error("{0}")]
    Share(String),
}

/// As upstream keeps it, so that a node can change hands with its pods running.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

impl Range {
    /// The text that is kept of it.
    pub fn to_json(self) -> String {
        // Numbers alone: simple enough to be written by hand, and without a failure.
        let Range { first, length } = self;
        let one = format!(r#"[{{"hostId":{first},"containerId":0,"length":{length}}}]"#);
        format!(r#"{{"uidMappings":{one},"gidMappings":{one}}}"#)
    }

    /// Reads it back.
    pub fn from_json(text: &[u8]) -> Result<Self, UsernsError> {
        let wrong = |why: &str| UsernsError::File(why.to_owned());
        let kept: Kept = serde_json::from_slice(text).map_err(|error| wrong(&error.to_string()))?;
        let [one] = kept.uid_mappings.as_slice() else {
            return Err(wrong("no more than one mapping allowed"));
        };
        if kept.gid_mappings.as_slice() != std::slice::from_ref(one) {
            return Err(wrong("GID and UID mapping should be identical"));
        }
        if one.container_id != 0 {
            return Err(wrong("UID 0 must be mapped"));
        }
        Ok(Range {
            first: one.host_id,
            length: one.length,
        })
    }
}

/// All ranges of a node, and whose they are.
#[derive(Clone, Debug)]
pub struct Ranges {
    length: u32,
    /// Numbers of ranges: the first, and how many.
    first: u32,
    count: u32,
    used: BTreeMap<u32, String>,
    of: BTreeMap<String, u32>,
}

impl Ranges {
    /// With `length` ids per pod out of the node's `share` (its first id and how many), or out of
    /// all but the first 65536. There must be enough for `pods`.
    pub fn new(length: u32, share: Option<(u32, u32)>, pods: u32) -> Result<Self, UsernsError> {
        let (first, all) = share.unwrap_or((FIRST, u32::MAX - FIRST + 1));
        let wrong = |why: String| Err(UsernsError::Share(why));
        if length == 0 || !length.is_multiple_of(UNIT) {
            return wrong(format!(
                "user namespace length {length} is not a multiple of {UNIT}"
            ));
        }
        if !first.is_multiple_of(length) {
            return wrong(format!(
                "user assigned ID {first} is not a multiple of {length}"
            ));
        }
        if first < length {
            return wrong(format!(
                "user assigned ID {first} must be greater or equal to {length}"
            ));
        }
        // The whole of what 32 bits can hold is one id short of its length in 32 bits.
        if share.is_some() && !all.is_multiple_of(length) {
            return wrong(format!(
                "user assigned IDs length {all} is not a multiple of {length}"
            ));
        }
        if all / length < pods {
            return wrong(format!(
                "user assigned IDs are not enough to support {pods} pods"
            ));
        }
        Ok(Ranges {
            length,
            first: first / length,
            count: all / length,
            used: BTreeMap::new(),
            of: BTreeMap::new(),
        })
    }

    fn range(&self, number: u32) -> Range {
        Range {
            first: number.saturating_mul(self.length),
            length: self.length,
        }
    }

    /// A pod's range: the one that it has, or the first that is free.
    pub fn take(&mut self, uid: &str) -> Result<Range, UsernsError> {
        if let Some(number) = self.of.get(uid) {
            return Ok(self.range(*number));
        }
        let mut free = self.first;
        for number in self.used.keys() {
            if *number != free {
                break;
            }
            free += 1;
        }
        if free - self.first >= self.count {
            return Err(UsernsError::Full);
        }
        self.used.insert(free, uid.to_owned());
        self.of.insert(uid.to_owned(), free);
        Ok(self.range(free))
    }

    /// Notes that a pod has a range already.
    pub fn record(&mut self, uid: &str, range: Range) -> Result<(), UsernsError> {
        let Range { first, length } = range;
        let number = first / self.length;
        let ours = length == self.length
            && first.is_multiple_of(length)
            && (self.first..self.first.saturating_add(self.count)).contains(&number);
        if !ours {
            return Err(UsernsError::Foreign { first, length });
        }
        let other = self.used.get(&number).is_some_and(|known| known != uid);
        let elsewhere = self.of.get(uid).is_some_and(|known| *known != number);
        if other || elsewhere {
            return Err(UsernsError::Taken(uid.to_owned()));
        }
        self.used.insert(number, uid.to_owned());
        self.of.insert(uid.to_owned(), number);
        Ok(())
    }

    /// A pod has no range any more.
    pub fn release(&mut self, uid: &str) {
        if let Some(number) = self.of.remove(uid) {
            self.used.remove(&number);
        }
    }

    /// Pods that have a range.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        self.of.keys().map(String::as_str)
    }
}

/// The share of ids that the files of subordinate ids give to a user, where both give the same
/// one. None where neither names the user.
pub fn subordinate(user: &str, uids: &str, gids: &str) -> Result<Option<(u32, u32)>, UsernsError> {
    let of = |text: &str| -> Vec<(u32, u32)> {
        let line = |line: &str| {
            let mut parts = line.trim().split(':');
            (parts.next()? == user).then_some(())?;
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    };
    let (uids, gids) = (of(uids), of(gids));
    match (uids.as_slice(), gids.as_slice()) {
        ([], []) => Ok(None),
        ([uid], [gid]) if uid == gid => Ok(Some(*uid)),
        _ => Err(UsernsError::Share(format!(
            "subordinate IDs of {user}: one range is expected, and the same for users and groups"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> Ranges {
        Ranges::new(UNIT, None, 110).unwrap()
    }

    #[test]
    fn each_pod_has_its_own_and_keeps_it() {
        let mut all = ranges();
        let a = all.take("a").unwrap();
        let b = all.take("b").unwrap();
        assert_eq!((a.first, a.length), (65_536, 65_536));
        assert_eq!(b.first, 131_072);
        assert_eq!(all.take("a"), Ok(a));
        all.release("a");
        assert_eq!(all.take("c").unwrap().first, 65_536);
        assert_eq!(all.take("d").unwrap().first, 196_608);
    }

    #[test]
    fn what_is_kept_comes_back() {
        let range = Range {
            first: 131_072,
            length: UNIT,
        };
        assert_eq!(
            range.to_json(),
            "{\"uidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}],\
             \"gidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}]}"
        );
        assert_eq!(Range::from_json(range.to_json().as_bytes()), Ok(range));
        let text = range.to_json();
        for broken in [
            String::new(),
            "{}".to_owned(),
            text.replace("\"containerId\":0", "\"containerId\":1"),
            text.replacen("131072", "65536", 1),
            text.replace("[{", "[{\"hostId\":1,\"containerId\":0,\"length\":1},{"),
        ] {
            assert!(Range::from_json(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn records_are_checked() {
        let mut all = ranges();
        let range = |first, length| Range { first, length };
        assert!(all.record("a", range(131_072, UNIT)).is_ok());
        assert!(all.record("a", range(131_072, UNIT)).is_ok());
        assert!(all.record("b", range(131_072, UNIT)).is_err());
        assert!(all.record("a", range(196_608, UNIT)).is_err());
        assert!(all.record("c", range(0, UNIT)).is_err());
        assert!(all.record("c", range(65_537, UNIT)).is_err());
        assert!(all.record("c", range(65_536, 1)).is_err());
        assert_eq!(all.take("d").unwrap().first, 65_536);
        assert_eq!(all.take("e").unwrap().first, 196_608);
        assert_eq!(all.holders().collect::<Vec<_>>(), ["a", "d", "e"]);
    }

    #[test]
    fn shares() {
        assert!(Ranges::new(1000, None, 1).is_err());
        assert!(Ranges::new(UNIT, Some((0, UNIT)), 1).is_err());
        assert!(Ranges::new(UNIT, Some((UNIT, UNIT)), 2).is_err());
        assert!(Ranges::new(UNIT, Some((UNIT, UNIT + 1)), 1).is_err());
        let mut small = Ranges::new(UNIT, Some((2 * UNIT, UNIT)), 1).unwrap();
        assert_eq!(small.take("a").unwrap().first, 2 * UNIT);
        assert_eq!(small.take("b"), Err(UsernsError::Full));
        let lines = "root:1:2\nkubelet:65536:131072\n";
        assert_eq!(
            subordinate("kubelet", lines, lines),
            Ok(Some((65_536, 131_072)))
        );
        assert_eq!(subordinate("nobody", lines, lines), Ok(None));
        assert!(subordinate("kubelet", lines, "").is_err());
    }

    proptest! {
        #[test]
        fn no_two_pods_share_ids(acts in prop::collection::vec((0u8..6, any::<bool>()), 0..40)) {
            let mut all = Ranges::new(UNIT, Some((UNIT, 4 * UNIT)), 1).unwrap();
            let mut held: BTreeMap<u8, Range> = BTreeMap::new();
            for (pod, take) in acts {
                let uid = pod.to_string();
                if !take {
                    all.release(&uid);
                    held.remove(&pod);
                } else if let Ok(range) = all.take(&uid) {
                    prop_assert!(held.get(&pod).is_none_or(|known| *known == range));
                    held.insert(pod, range);
                } else {
                    prop_assert_eq!(held.len(), 4);
                }
                let mut firsts: Vec<_> = held.values().map(|range| range.first).collect();
                firsts.sort();
                firsts.dedup();
                prop_assert_eq!(firsts.len(), held.len());
            }
        }
    }
}
