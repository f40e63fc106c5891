//! Which spans the end of a trace waited for.

/// A span as the path sees it: times, and the place of its parent in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Any unit, the same for all.
    pub start: i128,
    /// Not before the start.
    pub end: i128,
    /// Index of the parent.
    pub parent: Option<usize>,
}

/// Marks the spans on the critical path.
///
/// From the end backwards: of a span's children the one whose work (its own and all that it
/// caused) ended last is what was waited for; before that one began, the one that had ended last
/// by then; and so on. A child may outlive its parent, because a change that a span published is
/// worked on after the span ended.
pub fn critical_path(nodes: &[Node]) -> Vec<bool> {
    let children = children(nodes);
    let ends = subtree_ends(nodes, &children);
    let mut marked = vec![false; nodes.len()];
    // Roots stand side by side under one that is not there.
    let mut waiting: Vec<(&[usize], i128)> = vec![(&children[nodes.len()], i128::MAX)];
    while let Some((siblings, until)) = waiting.pop() {
        let mut until = until;
        let mut by_end: Vec<usize> = siblings.to_vec();
        by_end.sort_by_key(|at| (ends[*at], nodes[*at].start));
        while let Some(at) = by_end.pop() {
            if ends[at] > until {
                continue;
            }
            marked[at] = true;
            waiting.push((&children[at], ends[at]));
            until = nodes[at].start;
        }
    }
    marked
}

/// The children of each node, and under the last index the roots. A node whose parents form a
/// circle counts as a root at the place where the circle is entered.
pub fn children(nodes: &[Node]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); nodes.len() + 1];
    for (at, node) in nodes.iter().enumerate() {
        let parent = node
            .parent
            .filter(|parent| *parent < nodes.len() && !circles(nodes, at));
        children[parent.unwrap_or(nodes.len())].push(at);
    }
    children
}

/// Whether following the parents from `from` comes back to it.
fn circles(nodes: &[Node], from: usize) -> bool {
    let mut at = from;
    for _ in 0..nodes.len() {
        match nodes.get(at).and_then(|node| node.parent) {
            Some(parent) if parent == from => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// When everything that a node caused had ended.
fn subtree_ends(nodes: &[Node], children: &[Vec<usize>]) -> Vec<i128> {
    let mut ends: Vec<i128> = nodes.iter().map(|node| node.end.max(node.start)).collect();
    // Parents before children, then folded from the back.
    let mut order: Vec<usize> = children[nodes.len()].clone();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        order.extend(&children[at]);
        next += 1;
    }
    for at in order.into_iter().rev() {
        if let Some(last) = children[at].iter().map(|child| ends[*child]).max() {
            ends[at] = ends[at].max(last);
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(start: i128, end: i128, parent: Option<usize>) -> Node {
        Node { start, end, parent }
    }

    fn path(nodes: &[Node]) -> Vec<usize> {
        let marked = critical_path(nodes);
        (0..nodes.len()).filter(|at| marked[*at]).collect()
    }

    #[test]
    fn of_parallel_steps_the_longest_is_critical() {
        // Volumes, sandbox and pull at once, then create, then start.
        let nodes = [
            node(0, 200, None),
            node(0, 20, Some(0)),
            node(0, 100, Some(0)),
            node(0, 60, Some(0)),
            node(100, 110, Some(0)),
            node(110, 150, Some(0)),
        ];
        assert_eq!(path(&nodes), [0, 2, 4, 5]);
    }

    #[test]
    fn work_that_outlives_its_cause_is_followed() {
        // Seen, published, worked on by others afterwards.
        let nodes = [
            node(0, 5, None),
            node(6, 50, Some(0)),
            node(51, 60, Some(1)),
            node(6, 9, Some(0)),
        ];
        assert_eq!(path(&nodes), [0, 1, 2]);
    }

    #[test]
    fn a_circle_does_not_hold_anybody() {
        let nodes = [
            node(0, 1, Some(1)),
            node(0, 2, Some(0)),
            node(1, 2, Some(7)),
            node(0, 1, Some(3)),
        ];
        assert_eq!(critical_path(&nodes).len(), 4);
    }

    proptest! {
        #[test]
        fn the_path_is_connected_and_never_overlaps_among_siblings(
            raw in prop::collection::vec((0..100_i128, 0..50_i128, prop::option::of(0..40_usize)), 1..40),
        ) {
            let nodes: Vec<Node> =
                raw.iter().map(|(start, long, parent)| node(*start, start + long, *parent)).collect();
            let marked = critical_path(&nodes);
            let children = children(&nodes);
            prop_assert!(marked.contains(&true));
            prop_assert_eq!(children.concat().len(), nodes.len());
            for (at, below) in children.iter().enumerate().take(nodes.len()) {
                for child in below.iter().filter(|child| marked[**child]) {
                    prop_assert!(marked[at], "{child} is on the path without its parent {at}");
                }
            }
        }
    }
}
