//! Traces of pod starts as a node of some size has them, with texts that a page must not take for its own.

use jiff::Timestamp;
use polylet_trace::{SpanRecord, Trace};

/// A name that ends an attribute, a text and a script, and one that a drawing cannot hold.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\u{0}\u{1b}\u{202e}";

/// A step of a start: who records it, its name, and its times in milliseconds after the start's.
type Step = (&'static str, &'static str, i64, i64);

/// A plain start; the sandbox ends at the second mark, everything after it is as much later.
const STEPS: [Step; 8] = [
    ("pod-config", "podconfig.observe", 0, 2),
    ("sync-coordinator", "sync.volumes", 2, 9),
    ("volume-manager", "volume.setup", 3, 8),
    ("sync-coordinator", "cri.RunPodSandbox", 9, 99),
    ("sync-coordinator", "cri.CreateContainer", 100, 110),
    ("sync-coordinator", "cri.StartContainer", 111, 150),
    ("pleg", "pleg.observe", 150, 151),
    ("status-reporter", "status.patch", 152, 156),
];

/// So many starts, of which each takes a little longer than the one before it, by a version of the coordinator whose
/// sandboxes take `slower` milliseconds more.
pub(crate) fn starts(count: u32, version: &str, slower: i64) -> Vec<Trace> {
    (0..count).map(|n| start(n, version, slower)).collect()
}

fn start(n: u32, version: &str, slower: i64) -> Trace {
    let id = trace_id(n, version);
    let begin = 1_700_000_000_000 + i64::from(n) * 1_500;
    // Between nothing and a tenth of a second, differently for neighbours.
    let jitter = i64::from(n.wrapping_mul(2_654_435_761) >> 25);
    // The slowest is shown in full.
    let after_sandbox = slower + if n == 0 { 200 } else { jitter };
    let at = |millis: i64| {
        let later = if millis > 9 { after_sandbox } else { 0 };
        Timestamp::from_millisecond(begin + millis + later).unwrap_or_default()
    };
    let pod = match n {
        0 => HOSTILE.to_owned(),
        n => format!("web-{n}"),
    };
    let attributes = [
        ("k8s.pod.name", pod),
        ("k8s.namespace.name", "default".to_owned()),
        ("k8s.container.name", HOSTILE.to_owned()),
        ("polylet.outcome", "ready".to_owned()),
    ];
    let root = SpanRecord {
        trace: id,
        span: [1; 8],
        parent: None,
        service: "supervisor".to_owned(),
        version: version.to_owned(),
        name: "pod.start".to_owned(),
        start: at(0),
        end: at(160),
        attributes: attributes
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        error: None,
        links: Vec::new(),
    };
    let step = |(at_step, (service, name, from, to)): (usize, &Step)| SpanRecord {
        span: [u8::try_from(at_step).unwrap_or_default() + 2; 8],
        parent: Some(root.span),
        service: (*service).to_owned(),
        name: (*name).to_owned(),
        start: at(*from),
        end: at(*to),
        ..root.clone()
    };
    let mut spans: Vec<SpanRecord> = STEPS.iter().enumerate().map(step).collect();
    spans.push(root);
    Trace { id, spans }
}

fn trace_id(n: u32, version: &str) -> [u8; 16] {
    let mut id = [0; 16];
    let text = format!("{version:.8}{n:08}");
    for (to, from) in id.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    id
}
