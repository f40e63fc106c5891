use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn order_of_facts_does_not_matter(
        order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
        repeats in proptest::collection::vec(0_usize..4, 0..4),
        reconciles in proptest::collection::vec(any::<bool>(), 8),
        synced in 0_usize..5,
    ) {
        let mut manager = StatusManager::new(BTreeMap::new());
        for (index, number) in order.iter().chain(&repeats).enumerate() {
            if index == synced {
                sync_all(&mut manager);
            }
            fact(&mut manager, *number);
            if reconciles[index] {
                reconcile_all(&mut manager);
            }
        }
        sync_all(&mut manager);
        reconcile_all(&mut manager);
        prop_assert_eq!(manager.statuses(), ready().statuses());
    }

    #[test]
    fn peer_restarts_do_not_change_statuses(restarts in proptest::collection::vec((0_usize..7, any::<bool>(), any::<bool>()), 0..20)) {
        let mut manager = ready();
        let before = manager.statuses();
        for (stream, lost, restart) in restarts {
            let stream = FactStream::REQUIRED[stream];
            if lost { manager.facts.mark_stale(stream) } else { manager.facts.mark_synced(stream) }
            if restart {
                manager = ready_with(manager.statuses());
            }
            reconcile_all(&mut manager);
            prop_assert_eq!(&manager.statuses(), &before);
        }
    }
}
