//! Spans of one service on as few tracks as possible, on each of which they nest: viewers draw no others.

use std::cmp::Reverse;

/// The ends of the spans that are open on a lane, the innermost last.
#[derive(Debug, Default)]
struct OpenSpans {
    ends: Vec<i128>,
}

impl OpenSpans {
    /// Whether a span from `start` to `end` lies beside or within what is open.
    fn fits(&mut self, start: i128, end: i128) -> bool {
        while self.ends.last().is_some_and(|last| *last <= start) {
            self.ends.pop();
        }
        self.ends.last().is_none_or(|last| end <= *last)
    }
}

/// The indices of spans, given by start and end, on each lane; outer ones before those within them.
pub(super) fn lanes(spans: &[(i128, i128)]) -> Vec<Vec<usize>> {
    let mut order: Vec<(usize, (i128, i128))> = spans.iter().copied().enumerate().collect();
    order.sort_by_key(|(at, (start, end))| (*start, Reverse(*end), *at));
    let mut lanes: Vec<(OpenSpans, Vec<usize>)> = Vec::new();
    for (at, (start, end)) in order {
        let fitting = lanes.iter_mut().find_map(|(open, spans)| {
            let fits = open.fits(start, end);
            fits.then_some((open, spans))
        });
        match fitting {
            Some((open, spans)) => {
                open.ends.push(end);
                spans.push(at);
            }
            None => lanes.push((OpenSpans { ends: vec![end] }, vec![at])),
        }
    }
    lanes.into_iter().map(|(_, spans)| spans).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlaps_are_on_siblings() {
        let spans = [(0, 10), (2, 5), (4, 12), (5, 10), (10, 11), (12, 12)];
        assert_eq!(lanes(&spans), [vec![0, 1, 3, 4, 5], vec![2]]);
        assert_eq!(lanes(&[]), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn each_span_is_on_one_lane_and_nests(
            spans in prop::collection::vec((0..60_i128, 0..30_i128), 0..60),
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(start, long)| (start, start + long)).collect();
            let lanes = lanes(&spans);
            let mut all: Vec<usize> = lanes.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..spans.len()).collect::<Vec<_>>());
            for lane in &lanes {
                for (position, one) in lane.iter().enumerate() {
                    for other in &lane[position + 1..] {
                        let ((start, end), (from, to)) = (spans[*one], spans[*other]);
                        prop_assert!(start <= from && (to <= end || end <= from));
                    }
                }
            }
        }
    }
}
