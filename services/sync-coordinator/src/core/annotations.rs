//! Which of a pod's annotations its sandbox is given.
//!
//! A runtime tells all annotations of all sandboxes in each list, and containerd's answers end at
//! 16 MiB: a hundred pods with annotations as large as the cluster lets them be (256 KiB) would keep
//! every list from being told, and the node from working. What configures a runtime or a network is
//! small; what is not (a manifest applied last, an inventory) is for others.

use std::collections::BTreeMap;

/// Bytes of annotations that a sandbox is given at most: with the default of 110 pods, and one ended
/// sandbox beside each, lists stay within bounds.
pub const MOST: usize = 64 << 10;

/// The annotations that a sandbox is given, and the names of those that are left out: the largest
/// ones, and no more of them than necessary.
pub fn given(all: &BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
    let size = |(name, value): (&String, &String)| name.len() + value.len();
    let mut given = all.clone();
    let mut total: usize = all.iter().map(size).sum();
    let mut by_size: Vec<(usize, &String)> = all.iter().map(|it| (size(it), it.0)).collect();
    by_size.sort();
    let mut left_out = Vec::new();
    while total > MOST
        && let Some((bytes, name)) = by_size.pop()
    {
        given.remove(name);
        left_out.push(name.clone());
        total -= bytes;
    }
    (given, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_left_out_when_there_is_too_much() {
        let sized = |sizes: &[(&str, usize)]| {
            let one = |(name, size): &(&str, usize)| ((*name).to_owned(), "x".repeat(*size));
            sizes.iter().map(one).collect::<BTreeMap<_, _>>()
        };
        for (all, left_out) in [
            (sized(&[]), vec![]),
            (sized(&[("a", 10), ("b", MOST - 12)]), vec![]),
            (sized(&[("a", 10), ("b", MOST)]), vec!["b"]),
            (
                sized(&[("a", 200 << 10), ("b", 1), ("c", 50 << 10)]),
                vec!["a"],
            ),
            (
                sized(&[("a", 40 << 10), ("b", 30 << 10), ("c", 50 << 10)]),
                vec!["c", "a"],
            ),
        ] {
            let (given, left) = given(&all);
            assert_eq!(left, left_out);
            assert_eq!(given.len() + left.len(), all.len());
        }
    }
}
