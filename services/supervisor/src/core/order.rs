//! The services, and the order in which they start, stop and are upgraded.

/// A service and its rank: it only calls services of lower ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedService {
    /// The service's short name.
    pub name: &'static str,
    /// Higher than the ranks of its callees.
    pub rank: u8,
}

/// Every service, callees before callers.
pub const SERVICES: [RankedService; 10] = [
    RankedService {
        name: "pleg",
        rank: 0,
    },
    RankedService {
        name: "pod-config",
        rank: 0,
    },
    RankedService {
        name: "device-manager",
        rank: 0,
    },
    RankedService {
        name: "prober",
        rank: 1,
    },
    RankedService {
        name: "image-gc",
        rank: 1,
    },
    RankedService {
        name: "volume-manager",
        rank: 1,
    },
    RankedService {
        name: "eviction",
        rank: 2,
    },
    RankedService {
        name: "sync-coordinator",
        rank: 3,
    },
    RankedService {
        name: "status-reporter",
        rank: 4,
    },
    RankedService {
        name: "node-api",
        rank: 5,
    },
];

/// The services that have the most to read when they start, those first that others wait for: pods from
/// the API server and the runtime, and what status-reporter and sync-coordinator keep of each.
const FIRST_STARTED: [&str; 4] = ["pod-config", "pleg", "status-reporter", "sync-coordinator"];

/// Indices of services by the order to start them in: a caller waits for the first messages of its callees
/// anyway, and the processors of a small node are busy until all are there.
pub fn start_order(names: &[&str]) -> Vec<usize> {
    let first = |at: &usize| {
        let name = names.get(*at);
        let first = FIRST_STARTED.iter().position(|first| name == Some(first));
        first.unwrap_or(FIRST_STARTED.len())
    };
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(first);
    order
}

/// The supervisor itself, which calls all others.
pub const SUPERVISOR: &str = "supervisor";

/// All that can be upgraded, callees before callers: the services, and the supervisor itself.
pub fn upgradable() -> impl DoubleEndedIterator<Item = &'static str> {
    let services = SERVICES.iter().map(|service| service.name);
    services.chain(std::iter::once(SUPERVISOR))
}

/// The name of a service or the supervisor, if there is one of this name.
pub fn program_name(name: &str) -> Option<&'static str> {
    upgradable().find(|known| *known == name)
}

/// Groups of indices to stop one after the other, callers first.
pub fn stop_groups(services: &[RankedService]) -> Vec<Vec<usize>> {
    let mut ranks: Vec<u8> = services.iter().map(|service| service.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let group = |rank: u8| {
        let ranked = services.iter().enumerate();
        ranked
            .filter(|(_, service)| service.rank == rank)
            .map(|(at, _)| at)
            .collect()
    };
    ranks.into_iter().rev().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_come_before_callers() {
        assert!(SERVICES.is_sorted_by_key(|service| service.rank));
    }

    #[test]
    fn what_takes_long_starts_first() {
        let names = SERVICES.map(|service| service.name);
        let started: Vec<&str> = start_order(&names)
            .into_iter()
            .map(|at| names[at])
            .collect();
        assert_eq!(started[..4], FIRST_STARTED);
        assert_eq!(started[4..6], ["device-manager", "prober"]);
        assert_eq!(started.len(), names.len());
    }

    #[test]
    fn callers_stop_first() {
        let groups = stop_groups(&SERVICES);
        assert_eq!(groups.first(), Some(&vec![9]));
        assert_eq!(groups.last(), Some(&vec![0, 1, 2]));
        assert_eq!(groups.concat().len(), SERVICES.len());
    }
}
