//! The critical path of a trace: what its end waited for, from its first moment on.

use crate::path_tree::{PathNode, PathTree};

/// A time in which the trace waited for one span, or for nothing that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSegment {
    /// Index of the span; `None` where no span explains the time.
    pub node: Option<usize>,
    /// The first moment.
    pub start: i128,
    /// The end, which is the start of the next segment.
    pub end: i128,
}

/// The segments of the critical path, the earliest first. Each begins where the one before ends; together they
/// last from the first start of a span to the last end.
///
/// Walked from the end backwards. A span waited for the child that ended last, and before that child's start for
/// the one that had ended last by then; what a child set off and nobody waited for does not matter. A span that
/// no running parent called follows the linked span that ended last, or else what ended last of its siblings and
/// its parent, or else, as one without a parent does, of all spans.
///
/// A span without a parent holds the work of others together and does none of its own: a moment of which nothing
/// else is known belongs to the child that ran in it and ended first afterwards, as a call whose effect was seen
/// before it returned. The same holds in a span that was entered in its middle by this.
pub fn critical_path(nodes: &[PathNode]) -> Vec<PathSegment> {
    let tree = PathTree::new(nodes);
    let mut walk = BackwardWalk::new(nodes, &tree);
    let last = walk.last_of_all();
    walk.segments_until(last)
}

/// The same until the end of one of the spans: what goes on after it does not matter.
pub(crate) fn critical_path_until(nodes: &[PathNode], end_of: usize) -> Vec<PathSegment> {
    let tree = PathTree::new(nodes);
    let last = nodes.get(end_of).map(|_| end_of);
    BackwardWalk::new(nodes, &tree).segments_until(last)
}

/// The state of the walk. Time only decreases, so what ends after `now` need not be looked at again.
struct BackwardWalk<'a> {
    nodes: &'a [PathNode],
    tree: &'a PathTree,
    now: i128,
    entered: Vec<bool>,
    /// The children of each node, by end; those that are out of question are removed from the end.
    children: Vec<Vec<usize>>,
    /// Those of the children that end after `now`, the first to end last.
    running: Vec<Vec<usize>>,
    /// Whether a node was entered before its end.
    cut: Vec<bool>,
    all: Vec<usize>,
    /// The callers of the present node.
    callers: Vec<usize>,
    segments: Vec<PathSegment>,
}

impl<'a> BackwardWalk<'a> {
    fn new(nodes: &'a [PathNode], tree: &'a PathTree) -> Self {
        // Of two that end together the one that begins first has called the other one.
        let by_end = |indices: &mut Vec<usize>| {
            let key = |at: &usize| {
                let node = nodes.get(*at);
                node.map(|node| (node.end, std::cmp::Reverse((node.start, *at))))
            };
            indices.sort_by_key(key);
        };
        let sorted = |mut indices: Vec<usize>| {
            by_end(&mut indices);
            indices
        };
        let each = 0..nodes.len();
        let now = nodes.iter().map(|node| node.end).max();
        Self {
            nodes,
            tree,
            now: now.unwrap_or_default(),
            entered: vec![false; nodes.len()],
            children: each
                .clone()
                .map(|at| sorted(tree.children(at).to_vec()))
                .collect(),
            running: vec![Vec::new(); nodes.len()],
            cut: vec![false; nodes.len()],
            all: sorted(each.collect()),
            callers: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// The segments that end with a node.
    fn segments_until(mut self, last: Option<usize>) -> Vec<PathSegment> {
        let first = self.nodes.iter().map(|node| node.start).min();
        if let (Some(first), Some(last)) = (first, last) {
            self.now = self.end(last);
            self.follow(last);
            self.spend(None, first);
        }
        self.segments.reverse();
        self.segments
    }

    fn start(&self, at: usize) -> i128 {
        self.nodes.get(at).map_or(self.now, |node| node.start)
    }

    fn end(&self, at: usize) -> i128 {
        self.nodes.get(at).map_or(self.now, |node| node.end)
    }

    fn is_entered(&self, at: usize) -> bool {
        self.entered.get(at).copied().unwrap_or(true)
    }

    /// Goes from a node backwards until nothing is left.
    fn follow(&mut self, from: usize) {
        let mut present = from;
        self.enter(present);
        loop {
            let started = self.start(present);
            if let Some(child) = self
                .awaited(present)
                .filter(|child| self.end(*child) > started)
            {
                self.spend(Some(present), self.end(child));
                self.callers.push(present);
                present = child;
            } else {
                self.spend(Some(present), started);
                if let Some(caller) = self.caller() {
                    present = caller;
                    continue;
                }
                let Some(before) = self.before(present) else {
                    return;
                };
                self.spend(None, self.end(before));
                present = before;
            }
            self.enter(present);
        }
    }

    /// Spends the time down to `until` on a node.
    fn spend(&mut self, node: Option<usize>, until: i128) {
        if until >= self.now {
            return;
        }
        let end = std::mem::replace(&mut self.now, until);
        match self.segments.last_mut() {
            Some(after) if after.node == node => after.start = until,
            _ => self.segments.push(PathSegment {
                node,
                start: until,
                end,
            }),
        }
    }

    fn enter(&mut self, at: usize) {
        let cut = self.end(at) > self.now;
        if let (Some(entered), Some(is_cut)) = (self.entered.get_mut(at), self.cut.get_mut(at)) {
            *entered = true;
            *is_cut |= cut;
        }
    }

    /// The child that a node waited for last.
    fn awaited(&mut self, of: usize) -> Option<usize> {
        let ended = self.last_child(of);
        if ended.is_some_and(|ended| self.end(ended) == self.now) {
            return ended;
        }
        let works_itself = self.tree.parent(of).is_some() && !self.cut.get(of).copied()?;
        if works_itself {
            return ended;
        }
        self.running_child(of).or(ended)
    }

    /// Of the children that run at this moment the one that ends first; one that outlives its parent was not
    /// waited for.
    fn running_child(&mut self, of: usize) -> Option<usize> {
        let mut running = std::mem::take(self.running.get_mut(of)?);
        let end = self.end(of);
        let runs = |at: &usize| {
            !self.is_entered(*at) && self.start(*at) < self.now && self.end(*at) <= end
        };
        while running.last().is_some_and(|at| !runs(at)) {
            running.pop();
        }
        let first = running.last().copied();
        *self.running.get_mut(of)? = running;
        first
    }

    /// The caller of the present node that was running before it.
    fn caller(&mut self) -> Option<usize> {
        while let Some(caller) = self.callers.pop() {
            if self.start(caller) < self.now {
                return Some(caller);
            }
        }
        None
    }

    /// What a node that nobody waited for as a caller has followed.
    fn before(&mut self, at: usize) -> Option<usize> {
        let causes = self.nodes.get(at).map_or(&[][..], |node| &node.causes);
        let begun = |of: &usize| !self.is_entered(*of) && self.start(*of) < self.now;
        // Of two that still ran, the later one.
        let ended = |of: &usize| {
            let end = self.end(*of).min(self.now);
            (end, self.start(*of), std::cmp::Reverse(*of))
        };
        let cause = causes.iter().copied().filter(begun).max_by_key(ended);
        let parent = self.tree.parent(at).filter(begun);
        if cause.is_some() {
            return cause;
        }
        if parent.is_some_and(|parent| self.end(parent) >= self.now) {
            return parent;
        }
        let sibling = self.tree.parent(at).and_then(|of| self.last_child(of));
        let latest = [sibling, parent].into_iter().flatten();
        let latest = latest.max_by_key(|of| self.end(*of));
        latest.or_else(|| self.last_of_all())
    }

    fn last_child(&mut self, of: usize) -> Option<usize> {
        let mut children = std::mem::take(self.children.get_mut(of)?);
        let mut later = Vec::new();
        let last = self.last(&mut children, &mut later);
        *self.children.get_mut(of)? = children;
        self.running.get_mut(of)?.append(&mut later);
        last
    }

    fn last_of_all(&mut self) -> Option<usize> {
        let mut all = std::mem::take(&mut self.all);
        let last = self.last(&mut all, &mut Vec::new());
        self.all = all;
        last
    }

    /// The last to end until now that was not entered; those that end later are moved to `later`.
    fn last(&self, by_end: &mut Vec<usize>, later: &mut Vec<usize>) -> Option<usize> {
        while let Some(last) = by_end.last().copied() {
            if !self.is_entered(last) && self.end(last) <= self.now {
                return Some(last);
            }
            later.extend(by_end.pop());
        }
        None
    }
}

#[cfg(test)]
#[path = "critical_path_tests.rs"]
mod tests;
