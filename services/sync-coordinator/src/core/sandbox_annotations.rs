//! The annotations of a pod that its sandbox gets.
//!
//! A runtime returns all annotations of all sandboxes in each list, and containerd's responses are
//! limited to 16 MiB: a hundred pods with the largest annotations that the API server accepts
//! (256 KiB) would make every list fail. What configures a runtime or a network is small; what is
//! large (`last-applied-configuration`, inventories) is not for the runtime.

use std::collections::BTreeMap;

/// The most bytes of annotations that a sandbox gets: with the default of 110 pods, and one exited
/// sandbox for each, lists stay within the limit.
pub const MAX_BYTES: usize = 64 << 10;

/// The annotations within the limit, and the names of those left out: the largest ones, and no more
/// than necessary.
pub fn truncate(all: &BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
    let size = |(name, value): (&String, &String)| name.len() + value.len();
    let mut included = all.clone();
    let mut total: usize = all.iter().map(size).sum();
    let mut by_size: Vec<(usize, &String)> = all.iter().map(|it| (size(it), it.0)).collect();
    by_size.sort();
    let mut left_out = Vec::new();
    while total > MAX_BYTES
        && let Some((bytes, name)) = by_size.pop()
    {
        included.remove(name);
        left_out.push(name.clone());
        total -= bytes;
    }
    (included, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_the_largest_beyond_the_limit() {
        let sized = |sizes: &[(&str, usize)]| {
            let one = |(name, size): &(&str, usize)| ((*name).to_owned(), "x".repeat(*size));
            sizes.iter().map(one).collect::<BTreeMap<_, _>>()
        };
        for (all, expected) in [
            (sized(&[]), vec![]),
            (sized(&[("a", 10), ("b", MAX_BYTES - 12)]), vec![]),
            (sized(&[("a", 10), ("b", MAX_BYTES)]), vec!["b"]),
            (
                sized(&[("a", 200 << 10), ("b", 1), ("c", 50 << 10)]),
                vec!["a"],
            ),
            (
                sized(&[("a", 40 << 10), ("b", 30 << 10), ("c", 50 << 10)]),
                vec!["c", "a"],
            ),
        ] {
            let (included, left_out) = truncate(&all);
            assert_eq!(left_out, expected);
            assert_eq!(included.len() + left_out.len(), all.len());
        }
    }
}
