//! Folded stacks, for flame graphs: the time on the critical paths, by the calls that it was spent in.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::path_tree::PathTree;
use crate::text::printable;
use crate::trace::Trace;

/// Longer names are cut off, in characters.
const MAX_NAME: usize = 200;
/// Further calls within are left out.
const MAX_DEPTH: usize = 100;

/// Writes a line for each stack: the root, `service/operation` of each call, the innermost last, and the microseconds
/// over all traces. The sum is that of the traces' durations.
///
/// # Errors
/// Writing failed.
pub fn write(traces: &[Trace], to: &mut dyn Write) -> io::Result<()> {
    let mut stacks: BTreeMap<String, i128> = BTreeMap::new();
    for trace in traces {
        add(trace, &mut stacks);
    }
    for (stack, nanos) in stacks {
        let micros = (nanos + 500) / 1000;
        if micros > 0 {
            writeln!(to, "{stack} {micros}")?;
        }
    }
    Ok(())
}

fn add(trace: &Trace, stacks: &mut BTreeMap<String, i128>) {
    let Some(root) = trace.root() else { return };
    let tree = PathTree::new(&trace.nodes());
    let (from, to) = (root.start.as_nanosecond(), root.end.as_nanosecond());
    for segment in trace.critical_path() {
        let time = segment.end.min(to) - segment.start.max(from);
        if time <= 0 {
            continue;
        }
        let mut frames = Vec::new();
        let mut at = segment.node;
        while let Some(of) = at.filter(|_| frames.len() < MAX_DEPTH) {
            let span = trace.spans.get(of);
            let span = span.filter(|span| span.span != root.span);
            frames.extend(span.map(|span| frame(&format!("{}/{}", span.service, span.name))));
            at = tree.parent(of);
        }
        if segment.node.is_none() {
            frames.push("(unattributed)".to_owned());
        }
        frames.push(frame(&root.name));
        frames.reverse();
        *stacks.entry(frames.join(";")).or_default() += time;
    }
}

/// A name without what separates frames.
fn frame(name: &str) -> String {
    match name {
        "" => "(unnamed)".to_owned(),
        name => printable(name, MAX_NAME).replace(';', ","),
    }
}
