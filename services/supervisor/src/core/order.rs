//! Which services there are and in which order they start and stop.

/// A service and its rank: it calls services of lower rank only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// The service's short name.
    pub name: &'static str,
    /// Callees have lower ranks than their callers.
    pub rank: u8,
}

/// Every service, callees before callers.
pub const SERVICES: [Ranked; 9] = [
    Ranked {
        name: "pleg",
        rank: 0,
    },
    Ranked {
        name: "pod-config",
        rank: 0,
    },
    Ranked {
        name: "prober",
        rank: 1,
    },
    Ranked {
        name: "image-gc",
        rank: 1,
    },
    Ranked {
        name: "volume-manager",
        rank: 1,
    },
    Ranked {
        name: "eviction",
        rank: 2,
    },
    Ranked {
        name: "sync-coordinator",
        rank: 3,
    },
    Ranked {
        name: "status-reporter",
        rank: 4,
    },
    Ranked {
        name: "node-api",
        rank: 5,
    },
];

/// Groups to stop one after the other, callers first; what is in one group can stop at once.
pub fn stop_groups(services: &[Ranked]) -> Vec<Vec<usize>> {
    let mut ranks: Vec<u8> = services.iter().map(|service| service.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let group = |rank: u8| {
        (0..services.len())
            .filter(|at| services[*at].rank == rank)
            .collect()
    };
    ranks.into_iter().rev().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_stand_in_start_order() {
        assert!(SERVICES.is_sorted_by_key(|service| service.rank));
    }

    #[test]
    fn callers_stop_first() {
        let groups = stop_groups(&SERVICES);
        assert_eq!(groups.first(), Some(&vec![8]));
        assert_eq!(groups.last(), Some(&vec![0, 1]));
        assert_eq!(groups.concat().len(), SERVICES.len());
    }
}
