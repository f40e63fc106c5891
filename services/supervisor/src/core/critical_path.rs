//! The critical path of a trace: the spans that its end waited for.

/// A span: its times, and the index of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathNode {
    /// In any unit, the same for all nodes.
    pub start: i128,
    /// At or after the start.
    pub end: i128,
    /// Index of the parent.
    pub parent: Option<usize>,
}

/// Marks the spans on the critical path.
///
/// Computed from the end backwards: the child whose subtree ended last is on the path, before its start
/// the child whose subtree had ended last by then, and so on. A child may outlive its parent, as a change
/// that a span publishes is processed after the span has ended.
pub fn critical_path(nodes: &[PathNode]) -> Vec<bool> {
    let children = children(nodes);
    let ends = subtree_ends(nodes, &children);
    let mut marked = vec![false; nodes.len()];
    // All roots are siblings.
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

/// The children of each node, and under the last index the roots. A node whose ancestors form a cycle
/// counts as a root.
pub fn children(nodes: &[PathNode]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); nodes.len() + 1];
    for (at, node) in nodes.iter().enumerate() {
        let parent = node
            .parent
            .filter(|parent| *parent < nodes.len() && !is_in_cycle(nodes, at));
        children[parent.unwrap_or(nodes.len())].push(at);
    }
    children
}

/// Whether a node is its own ancestor.
fn is_in_cycle(nodes: &[PathNode], from: usize) -> bool {
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

/// The end of each subtree.
fn subtree_ends(nodes: &[PathNode], children: &[Vec<usize>]) -> Vec<i128> {
    let mut ends: Vec<i128> = nodes.iter().map(|node| node.end.max(node.start)).collect();
    // Parents come before children; folded in reverse.
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

    fn node(start: i128, end: i128, parent: Option<usize>) -> PathNode {
        PathNode { start, end, parent }
    }

    fn path(nodes: &[PathNode]) -> Vec<usize> {
        let marked = critical_path(nodes);
        (0..nodes.len()).filter(|at| marked[*at]).collect()
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
        assert_eq!(path(&nodes), [0, 2, 4, 5]);
    }

    #[test]
    fn children_that_outlive_their_parent_are_on_the_path() {
        // A published change is processed by others afterwards.
        let nodes = [
            node(0, 5, None),
            node(6, 50, Some(0)),
            node(51, 60, Some(1)),
            node(6, 9, Some(0)),
        ];
        assert_eq!(path(&nodes), [0, 1, 2]);
    }

    #[test]
    fn cycles_terminate() {
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
        fn path_is_connected(
            raw in prop::collection::vec((0..100_i128, 0..50_i128, prop::option::of(0..40_usize)), 1..40),
        ) {
            let nodes: Vec<PathNode> =
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
