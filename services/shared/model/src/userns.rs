//! User namespaces of pods: the range of the node's user ids that each pod is given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Lengths of ranges are multiples of this.
pub const RANGE_UNIT: u32 = 65_536;
/// The default first id of the ranges; lower ids are for users of the node.
const FIRST_ID: u32 = RANGE_UNIT;

/// A range of the node's ids, mapped to ids from 0 in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The id on the node of the pod's id 0.
    pub first: u32,
    /// The number of ids.
    pub length: u32,
}

/// A range that cannot be allocated or restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernsError {
    /// All ranges are in use.
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    /// The state file is invalid.
    #[error("invalid user namespace mappings file: {0}")]
    File(String),
    /// The range in the state file is not one of this node's.
    #[error("wrong user namespace length {length} or offset specified {first}")]
    NotOnNode {
        /// The first id.
        first: u32,
        /// The number of ids.
        length: u32,
    },
    /// The range of the state file is another pod's.
    #[error("range picked for pod {0:?} already taken")]
    Taken(String),
    /// The node's configured ids cannot be divided into ranges.
    #[error("{0}")]
    Subordinate(String),
}

/// Upstream's state file, so that a node can change its agent while its pods run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MappingsFile {
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

impl IdRange {
    /// The content of the state file.
    pub fn to_json(self) -> String {
        // Written by hand, as this cannot fail.
        let IdRange { first, length } = self;
        let one = format!(r#"[{{"hostId":{first},"containerId":0,"length":{length}}}]"#);
        format!(r#"{{"uidMappings":{one},"gidMappings":{one}}}"#)
    }

    /// Parses a state file.
    pub fn from_json(text: &[u8]) -> Result<Self, UsernsError> {
        let invalid = |reason: &str| UsernsError::File(reason.to_owned());
        let file: MappingsFile =
            serde_json::from_slice(text).map_err(|error| invalid(&error.to_string()))?;
        let [mapping] = file.uid_mappings.as_slice() else {
            return Err(invalid("no more than one mapping allowed"));
        };
        if file.gid_mappings.as_slice() != std::slice::from_ref(mapping) {
            return Err(invalid("GID and UID mapping should be identical"));
        }
        if mapping.container_id != 0 {
            return Err(invalid("UID 0 must be mapped"));
        }
        Ok(IdRange {
            first: mapping.host_id,
            length: mapping.length,
        })
    }
}

/// All ranges of a node, with the pods that they are allocated to.
#[derive(Clone, Debug)]
pub struct IdRangeAllocator {
    length: u32,
    /// The index of the first range (its first id divided by `length`), and the number of ranges.
    first: u32,
    count: u32,
    by_index: BTreeMap<u32, String>,
    by_pod: BTreeMap<String, u32>,
}

impl IdRangeAllocator {
    /// An allocator with `length` ids per pod, out of `subordinate` ids (the first and how many), or out
    /// of all but the first 65536. There must be enough for `pods`.
    pub fn new(
        length: u32,
        subordinate: Option<(u32, u32)>,
        pods: u32,
    ) -> Result<Self, UsernsError> {
        let (first, all) = subordinate.unwrap_or((FIRST_ID, u32::MAX - FIRST_ID + 1));
        let invalid = |reason: String| Err(UsernsError::Subordinate(reason));
        if length == 0 || !length.is_multiple_of(RANGE_UNIT) {
            return invalid(format!(
                "user namespace length {length} is not a multiple of {RANGE_UNIT}"
            ));
        }
        if !first.is_multiple_of(length) {
            return invalid(format!(
                "user assigned ID {first} is not a multiple of {length}"
            ));
        }
        if first < length {
            return invalid(format!(
                "user assigned ID {first} must be greater or equal to {length}"
            ));
        }
        // All 32-bit ids: their number minus the first range does not fit in 32 bits.
        if subordinate.is_some() && !all.is_multiple_of(length) {
            return invalid(format!(
                "user assigned IDs length {all} is not a multiple of {length}"
            ));
        }
        if all / length < pods {
            return invalid(format!(
                "user assigned IDs are not enough to support {pods} pods"
            ));
        }
        Ok(IdRangeAllocator {
            length,
            first: first / length,
            count: all / length,
            by_index: BTreeMap::new(),
            by_pod: BTreeMap::new(),
        })
    }

    fn range(&self, index: u32) -> IdRange {
        IdRange {
            first: index.saturating_mul(self.length),
            length: self.length,
        }
    }

    /// A pod's range: the allocated one, or else the first free one.
    pub fn allocate(&mut self, uid: &str) -> Result<IdRange, UsernsError> {
        if let Some(index) = self.by_pod.get(uid) {
            return Ok(self.range(*index));
        }
        let mut free = self.first;
        for index in self.by_index.keys() {
            if *index != free {
                break;
            }
            free += 1;
        }
        if free - self.first >= self.count {
            return Err(UsernsError::Full);
        }
        self.by_index.insert(free, uid.to_owned());
        self.by_pod.insert(uid.to_owned(), free);
        Ok(self.range(free))
    }

    /// Restores the range of a pod.
    pub fn record(&mut self, uid: &str, range: IdRange) -> Result<(), UsernsError> {
        let IdRange { first, length } = range;
        let index = first / self.length;
        let is_on_node = length == self.length
            && first.is_multiple_of(length)
            && (self.first..self.first.saturating_add(self.count)).contains(&index);
        if !is_on_node {
            return Err(UsernsError::NotOnNode { first, length });
        }
        let is_taken = self.by_index.get(&index).is_some_and(|known| known != uid);
        let has_other = self.by_pod.get(uid).is_some_and(|known| *known != index);
        if is_taken || has_other {
            return Err(UsernsError::Taken(uid.to_owned()));
        }
        self.by_index.insert(index, uid.to_owned());
        self.by_pod.insert(uid.to_owned(), index);
        Ok(())
    }

    /// Frees the range of a pod.
    pub fn release(&mut self, uid: &str) {
        if let Some(index) = self.by_pod.remove(uid) {
            self.by_index.remove(&index);
        }
    }

    /// The uids of pods with a range.
    pub fn allocated_pods(&self) -> impl Iterator<Item = &str> {
        self.by_pod.keys().map(String::as_str)
    }
}

/// A user's ids (the first and how many) in `/etc/subuid` and `/etc/subgid`, which have to be the
/// same; `None` if neither file has the user.
pub fn subordinate_ids(
    user: &str,
    uids: &str,
    gids: &str,
) -> Result<Option<(u32, u32)>, UsernsError> {
    let ranges = |text: &str| -> Vec<(u32, u32)> {
        let line = |line: &str| {
            let mut parts = line.trim().split(':');
            (parts.next()? == user).then_some(())?;
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    };
    let (uids, gids) = (ranges(uids), ranges(gids));
    match (uids.as_slice(), gids.as_slice()) {
        ([], []) => Ok(None),
        ([uid], [gid]) if uid == gid => Ok(Some(*uid)),
        _ => Err(UsernsError::Subordinate(format!(
            "subordinate IDs of {user}: one range is expected, and the same for users and groups"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> IdRangeAllocator {
        IdRangeAllocator::new(RANGE_UNIT, None, 110).unwrap()
    }

    #[test]
    fn each_pod_has_a_range_of_its_own() {
        let mut all = ranges();
        let a = all.allocate("a").unwrap();
        let b = all.allocate("b").unwrap();
        assert_eq!((a.first, a.length), (65_536, 65_536));
        assert_eq!(b.first, 131_072);
        assert_eq!(all.allocate("a"), Ok(a));
        all.release("a");
        assert_eq!(all.allocate("c").unwrap().first, 65_536);
        assert_eq!(all.allocate("d").unwrap().first, 196_608);
    }

    #[test]
    fn state_files_round_trip() {
        let range = IdRange {
            first: 131_072,
            length: RANGE_UNIT,
        };
        assert_eq!(
            range.to_json(),
            "{\"uidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}],\
             \"gidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}]}"
        );
        assert_eq!(IdRange::from_json(range.to_json().as_bytes()), Ok(range));
        let text = range.to_json();
        for invalid in [
            String::new(),
            "{}".to_owned(),
            text.replace("\"containerId\":0", "\"containerId\":1"),
            text.replacen("131072", "65536", 1),
            text.replace("[{", "[{\"hostId\":1,\"containerId\":0,\"length\":1},{"),
        ] {
            assert!(IdRange::from_json(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }

    #[test]
    fn restored_ranges_are_validated() {
        let mut all = ranges();
        let range = |first, length| IdRange { first, length };
        assert!(all.record("a", range(131_072, RANGE_UNIT)).is_ok());
        assert!(all.record("a", range(131_072, RANGE_UNIT)).is_ok());
        assert!(all.record("b", range(131_072, RANGE_UNIT)).is_err());
        assert!(all.record("a", range(196_608, RANGE_UNIT)).is_err());
        assert!(all.record("c", range(0, RANGE_UNIT)).is_err());
        assert!(all.record("c", range(65_537, RANGE_UNIT)).is_err());
        assert!(all.record("c", range(65_536, 1)).is_err());
        assert_eq!(all.allocate("d").unwrap().first, 65_536);
        assert_eq!(all.allocate("e").unwrap().first, 196_608);
        assert_eq!(all.allocated_pods().collect::<Vec<_>>(), ["a", "d", "e"]);
    }

    #[test]
    fn subordinate_ids_are_validated() {
        assert!(IdRangeAllocator::new(1000, None, 1).is_err());
        assert!(IdRangeAllocator::new(RANGE_UNIT, Some((0, RANGE_UNIT)), 1).is_err());
        assert!(IdRangeAllocator::new(RANGE_UNIT, Some((RANGE_UNIT, RANGE_UNIT)), 2).is_err());
        assert!(IdRangeAllocator::new(RANGE_UNIT, Some((RANGE_UNIT, RANGE_UNIT + 1)), 1).is_err());
        let mut small =
            IdRangeAllocator::new(RANGE_UNIT, Some((2 * RANGE_UNIT, RANGE_UNIT)), 1).unwrap();
        assert_eq!(small.allocate("a").unwrap().first, 2 * RANGE_UNIT);
        assert_eq!(small.allocate("b"), Err(UsernsError::Full));
        let lines = "root:1:2\nkubelet:65536:131072\n";
        assert_eq!(
            subordinate_ids("kubelet", lines, lines),
            Ok(Some((65_536, 131_072)))
        );
        assert_eq!(subordinate_ids("nobody", lines, lines), Ok(None));
        assert!(subordinate_ids("kubelet", lines, "").is_err());
    }

    proptest! {
        #[test]
        fn ranges_never_overlap(acts in prop::collection::vec((0u8..6, any::<bool>()), 0..40)) {
            let mut all = IdRangeAllocator::new(RANGE_UNIT, Some((RANGE_UNIT, 4 * RANGE_UNIT)), 1).unwrap();
            let mut allocated: BTreeMap<u8, IdRange> = BTreeMap::new();
            for (pod, take) in acts {
                let uid = pod.to_string();
                if !take {
                    all.release(&uid);
                    allocated.remove(&pod);
                } else if let Ok(range) = all.allocate(&uid) {
                    prop_assert!(allocated.get(&pod).is_none_or(|known| *known == range));
                    allocated.insert(pod, range);
                } else {
                    prop_assert_eq!(allocated.len(), 4);
                }
                let mut firsts: Vec<_> = allocated.values().map(|range| range.first).collect();
                firsts.sort();
                firsts.dedup();
                prop_assert_eq!(firsts.len(), allocated.len());
            }
        }
    }
}
