use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_order_of_facts_does_not_matter(
        order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
        repeats in proptest::collection::vec(0_usize..4, 0..4),
        joins in proptest::collection::vec(any::<bool>(), 8),
        heard in 0_usize..5,
    ) {
        let mut join = Join::new(BTreeMap::new());
        for (index, number) in order.iter().chain(&repeats).enumerate() {
            if index == heard {
                hear(&mut join);
            }
            fact(&mut join, *number);
            if joins[index] {
                tell(&mut join);
            }
        }
        hear(&mut join);
        tell(&mut join);
        prop_assert_eq!(join.statuses(), ready().statuses());
    }

    #[test]
    fn peers_come_and_go_without_a_flip(away in proptest::collection::vec((0_usize..7, any::<bool>(), any::<bool>()), 0..20)) {
        let mut join = ready();
        let before = join.statuses();
        for (stream, lost, restart) in away {
            let stream = Stream::ALL[stream];
            if lost { join.stale(stream) } else { join.synced(stream) }
            if restart {
                join = ready_with(join.statuses());
            }
            tell(&mut join);
            prop_assert_eq!(&join.statuses(), &before);
        }
    }
}
