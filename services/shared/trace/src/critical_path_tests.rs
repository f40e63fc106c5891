use proptest::prelude::*;

use super::*;

fn node(start: i128, end: i128, parent: Option<usize>) -> PathNode {
    PathNode {
        start,
        end,
        parent,
        causes: Vec::new(),
    }
}

/// The segments as the span and its time.
fn path(nodes: &[PathNode]) -> Vec<(Option<usize>, i128)> {
    let segments = critical_path(nodes).into_iter();
    segments
        .map(|one| (one.node, one.end - one.start))
        .collect()
}

#[test]
fn longest_parallel_step_is_critical() {
    // Volumes, sandbox and pull at once, then create, then start.
    let nodes = [
        node(0, 200, None),
        node(0, 20, Some(0)),
        node(0, 100, Some(0)),
        node(0, 60, Some(0)),
        node(100, 110, Some(0)),
        node(110, 150, Some(0)),
    ];
    let expected = [(Some(2), 100), (Some(4), 10), (Some(5), 40), (Some(0), 50)];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn what_a_step_has_set_off_does_not_disqualify_it() {
    // The sandbox publishes a change whose processing ends after the next step has begun.
    let nodes = [
        node(0, 1, None),
        node(1, 301, Some(0)),
        node(300, 320, Some(1)),
        node(310, 330, Some(2)),
        node(302, 400, Some(0)),
    ];
    let expected = [(Some(0), 1), (Some(1), 300), (None, 1), (Some(4), 98)];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn consequences_follow_their_parents() {
    // A published change is processed by others afterwards.
    let nodes = [
        node(0, 5, None),
        node(6, 50, Some(0)),
        node(51, 60, Some(1)),
        node(6, 9, Some(0)),
    ];
    let expected = [
        (Some(0), 5),
        (None, 1),
        (Some(1), 44),
        (None, 1),
        (Some(2), 9),
    ];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn a_linked_cause_comes_before_what_ended_last() {
    let mut nodes = [
        node(0, 10, None),
        node(10, 40, Some(0)),
        node(10, 60, Some(0)),
        node(70, 90, Some(0)),
    ];
    assert_eq!(path(&nodes)[1], (Some(2), 50));
    nodes[3].causes = vec![1];
    let expected = [(Some(0), 10), (Some(1), 30), (None, 30), (Some(3), 20)];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn calls_are_descended_into_and_returned_from() {
    let nodes = [
        node(0, 100, None),
        node(10, 90, Some(0)),
        node(20, 80, Some(1)),
        node(95, 98, Some(0)),
    ];
    let expected = [
        (Some(0), 10),
        (Some(1), 10),
        (Some(2), 60),
        (Some(1), 10),
        (Some(0), 5),
        (Some(3), 3),
        (Some(0), 2),
    ];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn a_call_that_overlaps_the_next_step_is_on_the_path() {
    // A container is stopped: its end is seen and its sandbox stopped before the call returns.
    let nodes = [
        node(0, 100, None),
        node(5, 70, Some(0)),
        node(10, 65, Some(1)),
        node(60, 100, Some(0)),
        // Ends later than the call: nobody waited for it.
        node(20, 90, Some(0)),
    ];
    let expected = [(Some(0), 5), (Some(1), 5), (Some(2), 50), (Some(3), 40)];
    assert_eq!(path(&nodes), expected);
}

#[test]
fn work_beside_a_call_that_is_not_waited_for_stays_with_who_does_it() {
    let nodes = [
        node(0, 100, None),
        node(0, 100, Some(0)),
        node(5, 70, Some(1)),
        node(60, 100, Some(1)),
    ];
    assert_eq!(path(&nodes), [(Some(1), 60), (Some(3), 40)]);
}

#[test]
fn unconnected_spans_leave_a_gap() {
    assert_eq!(path(&[]), []);
    assert_eq!(path(&[node(7, 7, None)]), []);
    let nodes = [node(0, 10, None), node(15, 20, None)];
    assert_eq!(path(&nodes), [(Some(0), 10), (None, 5), (Some(1), 5)]);
}

fn any_nodes() -> impl Strategy<Value = Vec<PathNode>> {
    let parent = || prop::option::of(0..40_usize);
    let causes = prop::collection::vec(0..40_usize, 0..3);
    let node =
        (0..100_i128, 0..50_i128, parent(), causes).prop_map(|(start, long, parent, causes)| {
            PathNode {
                start,
                end: start + long,
                parent,
                causes,
            }
        });
    prop::collection::vec(node, 1..40)
}

proptest! {
    #[test]
    fn segments_cover_the_trace_exactly(nodes in any_nodes()) {
        let path = critical_path(&nodes);
        let first = nodes.iter().map(|node| node.start).min().unwrap();
        let last = nodes.iter().map(|node| node.end).max().unwrap();
        let mut at = first;
        for segment in &path {
            prop_assert_eq!(segment.start, at);
            prop_assert!(segment.end > segment.start);
            if let Some(node) = segment.node {
                prop_assert!(nodes[node].start <= segment.start && segment.end <= nodes[node].end);
            }
            at = segment.end;
        }
        prop_assert_eq!(at, last);
    }

    /// Of nodes whose times differ, whichever order they come in.
    #[test]
    fn the_order_of_spans_does_not_matter(nodes in any_nodes(), seed in any::<u64>()) {
        let distinct: Vec<PathNode> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| {
                let at = i128::try_from(at).unwrap();
                PathNode { start: node.start * 1000 + 2 * at, end: node.end * 1000 + 2 * at + 1, ..node.clone() }
            })
            .collect();
        let count = distinct.len();
        let shift = usize::try_from(seed % u64::try_from(count).unwrap()).unwrap();
        let moved = |at: usize| if at < count { (at + shift) % count } else { at };
        let mut shifted = distinct.clone();
        for (at, node) in distinct.iter().enumerate() {
            shifted[moved(at)] = PathNode {
                parent: node.parent.map(moved),
                causes: node.causes.iter().map(|cause| moved(*cause)).collect(),
                ..node.clone()
            };
        }
        let times = |path: Vec<PathSegment>, name: &dyn Fn(usize) -> usize| -> Vec<_> {
            path.into_iter().map(|one| (one.node.map(name), one.start, one.end)).collect()
        };
        let expected = times(critical_path(&distinct), &moved);
        prop_assert_eq!(times(critical_path(&shifted), &|at| at), expected);
    }
}
