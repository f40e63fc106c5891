//! The critical path as text: where a trace spent its time, and whose it was.

use std::collections::BTreeMap;

use polylet_trace::{SpanRecord, StepOwner, Trace};

use super::text;
use super::waterfall::{description, nanos};

/// What no span explains.
const UNATTRIBUTED: &str = "(unattributed)";

/// A table with a row for each span on the path, in the order of time, and a line with the shares of the owners.
pub fn path_table(trace: &Trace) -> String {
    let path = trace.critical_path();
    let spans = &trace.spans;
    let total: i128 = path.iter().map(|segment| segment.end - segment.start).sum();
    if total == 0 {
        return String::new();
    }
    let mut order: Vec<Option<usize>> = Vec::new();
    let mut times: BTreeMap<Option<usize>, i128> = BTreeMap::new();
    let mut of_owners: BTreeMap<Option<StepOwner>, i128> = BTreeMap::new();
    for segment in path {
        let time = segment.end - segment.start;
        if !order.contains(&segment.node) {
            order.push(segment.node);
        }
        *times.entry(segment.node).or_default() += time;
        *of_owners.entry(owner(segment.node, spans)).or_default() += time;
    }
    let share = |time: i128| format!("{:.1} %", percent(time, total));
    let mut rows = vec![["TIME", "SHARE", "OWNER", "SERVICE", "STEP"].map(str::to_owned)];
    for node in order {
        let time = times.get(&node).copied().unwrap_or_default();
        let span = node.and_then(|at| spans.get(at));
        rows.push([
            text::duration(nanos(time)),
            share(time),
            label(owner(node, spans)).to_owned(),
            span.map_or_else(String::new, |span| span.service.clone()),
            span.map_or_else(|| UNATTRIBUTED.to_owned(), description),
        ]);
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let [t, s, o, v] = [0, 1, 2, 3].map(width);
    let mut table = "critical path\n\n".to_owned();
    for [time, share, owner, service, step] in &rows {
        let line = format!("{time:>t$} {share:>s$}  {owner:<o$}  {service:<v$}  {step}");
        table.push_str(line.trim_end());
        table.push('\n');
    }
    let mut owners: Vec<_> = of_owners.into_iter().collect();
    owners.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let owners = owners.into_iter();
    let owners = owners.map(|(owner, time)| {
        let name = owner.map_or(UNATTRIBUTED, StepOwner::label);
        format!("{name} {} ({})", text::duration(nanos(time)), share(time))
    });
    table.push_str(&format!("\n{}\n", owners.collect::<Vec<_>>().join(", ")));
    table
}

fn owner(node: Option<usize>, spans: &[SpanRecord]) -> Option<StepOwner> {
    let span = node.and_then(|at| spans.get(at))?;
    Some(StepOwner::of(&span.service, &span.name))
}

fn label(owner: Option<StepOwner>) -> &'static str {
    owner.map_or("", StepOwner::label)
}

fn percent(part: i128, total: i128) -> f64 {
    let seconds = |time: i128| nanos(time).as_secs_f64();
    seconds(part) * 100.0 / seconds(total)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn span(id: u8, service: &str, name: &str, start: i64, end: i64) -> SpanRecord {
        SpanRecord {
            trace: [9; 16],
            span: [id; 8],
            parent: (id != 1).then_some([1; 8]),
            service: service.to_owned(),
            version: String::new(),
            name: name.to_owned(),
            start: Timestamp::from_millisecond(start).unwrap(),
            end: Timestamp::from_millisecond(end).unwrap(),
            attributes: BTreeMap::new(),
            error: None,
            links: Vec::new(),
        }
    }

    fn trace(spans: Vec<SpanRecord>) -> Trace {
        Trace { id: [9; 16], spans }
    }

    #[test]
    fn each_step_has_its_time_and_owner() {
        let spans = vec![
            span(1, "sync-coordinator", "sync.sandbox", 0, 100),
            span(2, "sync-coordinator", "cri.RunPodSandbox", 5, 95),
            span(3, "prober", "probe.http", 160, 200),
        ];
        let table = "\
critical path

 TIME  SHARE  OWNER     SERVICE           STEP
10.0ms  5.0 %  polylet   sync-coordinator  sync.sandbox
90.0ms 45.0 %  runtime   sync-coordinator  cri.RunPodSandbox
60.0ms 30.0 %                              (unattributed)
40.0ms 20.0 %  workload  prober            probe.http

runtime 90.0ms (45.0 %), (unattributed) 60.0ms (30.0 %), workload 40.0ms (20.0 %), polylet 10.0ms (5.0 %)
";
        let words = |text: &str| -> Vec<Vec<String>> {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines().map(words).collect()
        };
        assert_eq!(words(&path_table(&trace(spans))), words(table));
        assert_eq!(path_table(&trace(Vec::new())), "");
    }
}
