//! The spans of a trace below their parents.

use std::cmp::Reverse;

/// A span: its times, and what caused it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathNode {
    /// In any unit, the same for all nodes.
    pub start: i128,
    /// At or after the start.
    pub end: i128,
    /// Index of the parent.
    pub parent: Option<usize>,
    /// Indices of linked nodes.
    pub causes: Vec<usize>,
}

/// Nodes below their parents, by their indices.
#[derive(Debug)]
pub struct PathTree {
    parents: Vec<Option<usize>>,
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl PathTree {
    /// A node without a parent among the nodes is a root, as is one whose ancestors form a cycle.
    pub fn new(nodes: &[PathNode]) -> Self {
        let mut tree = PathTree {
            parents: vec![None; nodes.len()],
            roots: Vec::new(),
            children: vec![Vec::new(); nodes.len()],
        };
        for (at, node) in nodes.iter().enumerate() {
            let exists = |parent: &usize| *parent < nodes.len() && !is_in_cycle(nodes, at);
            let parent = node.parent.filter(exists);
            let siblings = parent.and_then(|parent| tree.children.get_mut(parent));
            siblings.unwrap_or(&mut tree.roots).push(at);
            if let Some(known) = tree.parents.get_mut(at) {
                *known = parent;
            }
        }
        tree
    }

    /// The nodes without a parent.
    pub fn roots(&self) -> &[usize] {
        &self.roots
    }

    /// The parent of a node that is no root.
    pub fn parent(&self, at: usize) -> Option<usize> {
        self.parents.get(at).copied().flatten()
    }

    /// The children of a node.
    pub fn children(&self, at: usize) -> &[usize] {
        self.children.get(at).map_or(&[], Vec::as_slice)
    }
}

/// The indices of all nodes with their depths, children below their parents, earlier ones first.
pub fn depth_first(nodes: &[PathNode]) -> Vec<(usize, usize)> {
    let tree = PathTree::new(nodes);
    let times = |at: &usize| nodes.get(*at).map(|node| (node.start, node.end));
    let latest_first = |indices: &[usize]| {
        let mut indices = indices.to_vec();
        indices.sort_by_key(|at| Reverse(times(at)));
        indices
    };
    let mut order = Vec::with_capacity(nodes.len());
    let roots = latest_first(tree.roots());
    let mut waiting: Vec<(usize, usize)> = roots.into_iter().map(|at| (at, 0)).collect();
    while let Some((at, depth)) = waiting.pop() {
        order.push((at, depth));
        let children = latest_first(tree.children(at)).into_iter();
        waiting.extend(children.map(|child| (child, depth + 1)));
    }
    order
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn below(parents: &[Option<usize>]) -> PathTree {
        let node = |parent: &Option<usize>| PathNode {
            parent: *parent,
            ..PathNode::default()
        };
        PathTree::new(&parents.iter().map(node).collect::<Vec<_>>())
    }

    #[test]
    fn cycles_and_unknown_parents_are_roots() {
        let tree = below(&[Some(1), Some(0), Some(7), Some(3), Some(2)]);
        assert_eq!(tree.roots(), [0, 1, 2, 3]);
        assert_eq!(tree.children(2), [4]);
        assert_eq!((tree.parent(4), tree.parent(0)), (Some(2), None));
    }

    proptest! {
        #[test]
        fn each_node_has_one_place(parents in prop::collection::vec(prop::option::of(0..40_usize), 1..40)) {
            let tree = below(&parents);
            let children: usize = (0..parents.len()).map(|at| tree.children(at).len()).sum();
            prop_assert_eq!(tree.roots().len() + children, parents.len());
        }
    }
}
