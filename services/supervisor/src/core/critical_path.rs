//! The critical path of a trace: the spans that its end waited for.

use std::collections::BTreeSet;

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

/// Nodes below their parents, by their indices.
#[derive(Debug)]
pub struct PathTree {
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl PathTree {
    /// A node without a parent among the nodes is a root, as is one whose ancestors form a cycle.
    pub fn new(nodes: &[PathNode]) -> Self {
        let mut tree = PathTree {
            roots: Vec::new(),
            children: vec![Vec::new(); nodes.len()],
        };
        for (at, node) in nodes.iter().enumerate() {
            let parent = node.parent.filter(|_| !is_in_cycle(nodes, at));
            let siblings = parent.and_then(|parent| tree.children.get_mut(parent));
            siblings.unwrap_or(&mut tree.roots).push(at);
        }
        tree
    }

    /// The nodes without a parent.
    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    /// The children of a node.
    pub fn children(&self, at: usize) -> &[usize] {
        self.children.get(at).map_or(&[], Vec::as_slice)
    }
}

/// The indices of the spans on the critical path.
///
/// Computed from the end backwards: the child whose subtree ended last is on the path, before its start
/// the child whose subtree had ended last by then, and so on. A child may outlive its parent, as a change
/// that a span publishes is processed after the span has ended.
pub fn critical_path(nodes: &[PathNode]) -> BTreeSet<usize> {
    let tree = PathTree::new(nodes);
    let ends = subtree_ends(nodes, &tree);
    let times = |at: &usize| Some((*ends.get(*at)?, nodes.get(*at)?.start, *at));
    let mut path = BTreeSet::new();
    // All roots are siblings.
    let mut waiting: Vec<(&[usize], i128)> = vec![(tree.roots(), i128::MAX)];
    while let Some((siblings, mut until)) = waiting.pop() {
        let mut by_end: Vec<(i128, i128, usize)> = siblings.iter().filter_map(times).collect();
        by_end.sort_by_key(|(end, start, _)| (*end, *start));
        while let Some((end, start, at)) = by_end.pop() {
            if end > until {
                continue;
            }
            path.insert(at);
            waiting.push((tree.children(at), end));
            until = start;
        }
    }
    path
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
fn subtree_ends(nodes: &[PathNode], tree: &PathTree) -> Vec<i128> {
    let mut ends: Vec<i128> = nodes.iter().map(|node| node.end.max(node.start)).collect();
    // Parents come before children; folded in reverse.
    let mut order: Vec<usize> = tree.roots().to_vec();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        order.extend(tree.children(at));
        next += 1;
    }
    for at in order.into_iter().rev() {
        let children = tree.children(at).iter();
        let last = children.filter_map(|child| ends.get(*child).copied()).max();
        if let (Some(end), Some(last)) = (ends.get_mut(at), last) {
            *end = last.max(*end);
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
        critical_path(nodes).into_iter().collect()
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
        assert_eq!(path(&nodes), [2, 3]);
    }

    proptest! {
        #[test]
        fn path_is_connected(
            raw in prop::collection::vec((0..100_i128, 0..50_i128, prop::option::of(0..40_usize)), 1..40),
        ) {
            let nodes: Vec<PathNode> =
                raw.iter().map(|(start, long, parent)| node(*start, start + long, *parent)).collect();
            let path = critical_path(&nodes);
            let tree = PathTree::new(&nodes);
            prop_assert!(!path.is_empty());
            let below: usize = (0..nodes.len()).map(|at| tree.children(at).len()).sum();
            prop_assert_eq!(tree.roots().len() + below, nodes.len());
            for at in 0..nodes.len() {
                for child in tree.children(at).iter().filter(|child| path.contains(child)) {
                    prop_assert!(path.contains(&at), "{child} is on the path without its parent {at}");
                }
            }
        }
    }
}
