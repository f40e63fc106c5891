//! The directory through which crash points are recorded and armed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use polylet_e2e::ok;

/// One point of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) service: String,
    /// Its place among the points of its service.
    pub(crate) number: u32,
    /// `before`, `during` or `after`, and the effect.
    what: String,
    /// The how-many-th of this name.
    occurrence: u32,
}

impl Point {
    /// Whether the runtime's start of a container is interrupted. It gives up a start whose caller is gone,
    /// and that container has failed, whatever it has done by then.
    pub(crate) fn interrupts_start(&self) -> bool {
        self.what == "during cri.StartContainer"
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            service,
            number,
            what,
            occurrence,
        } = self;
        write!(f, "{service}:{number} {what} #{occurrence}")
    }
}

/// The directory that the services look into.
pub(crate) struct Control(tempfile::TempDir);

impl Control {
    pub(crate) fn new() -> Self {
        Self(ok(tempfile::tempdir()))
    }

    /// What the services are started with.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let directory = self.0.path().display().to_string();
        vec![("POLYLET_CRASH_POINTS".to_owned(), directory)]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Records points from now on.
    pub(crate) fn record(&self) {
        ok(fs::write(self.file("record"), ""));
    }

    /// Ends a recording and returns its points, those of a test's selection alone. More than
    /// `max_occurrences` of an effect are its repetitions.
    pub(crate) fn recorded(&self, max_occurrences: u32) -> Vec<Point> {
        let text = ok(fs::read_to_string(self.file("record")));
        ok(fs::remove_file(self.file("record")));
        assert!(
            !text.is_empty(),
            "these programs have no crash points: cargo verify -- --only crash-points"
        );
        select(points(&text, max_occurrences))
    }

    /// The process that reaches the point is killed.
    pub(crate) fn arm(&self, point: &Point) {
        let _ = fs::remove_file(self.file("crashed"));
        let Point {
            service,
            what,
            occurrence,
            ..
        } = point;
        let new = self.file("armed.new");
        ok(fs::write(&new, format!("{occurrence} {service} {what}\n")));
        ok(fs::rename(new, self.file("armed")));
    }

    /// Whether the armed point was reached; it is not armed any more.
    pub(crate) fn disarm(&self) -> bool {
        let _ = fs::remove_file(self.file("armed"));
        self.has_crashed()
    }

    /// Whether the armed point was reached.
    pub(crate) fn has_crashed(&self) -> bool {
        self.file("crashed").exists()
    }
}

/// The points of a record that leave different states behind: nothing happens between the end of an
/// effect and the beginning of the next one.
fn points(record: &str, max_occurrences: u32) -> Vec<Point> {
    let mut points = Vec::new();
    let mut occurrences: BTreeMap<&str, u32> = BTreeMap::new();
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut previous: BTreeMap<&str, &str> = BTreeMap::new();
    for line in record.lines() {
        let Some((service, what)) = line.split_once(' ') else {
            continue;
        };
        let phase = what.split(' ').next().unwrap_or_default();
        let number = numbers.entry(service).or_default();
        *number += 1;
        let occurrence = occurrences.entry(line).or_default();
        *occurrence += 1;
        let before = previous.insert(service, phase);
        let same_state = phase == "before" && before == Some("after");
        if same_state || *occurrence > max_occurrences {
            continue;
        }
        points.push(Point {
            service: service.to_owned(),
            number: *number,
            what: what.to_owned(),
            occurrence: *occurrence,
        });
    }
    points
}

fn select(mut points: Vec<Point>) -> Vec<Point> {
    if let Ok(filter) = std::env::var("POLYLET_TEST_CRASH_FILTER") {
        points.retain(|point| format!("{} {}", point.service, point.what).contains(&filter));
    }
    let every = std::env::var("POLYLET_TEST_CRASH_EVERY").ok();
    let every = every.and_then(|text| text.parse().ok()).unwrap_or(1);
    points.into_iter().step_by(every).collect()
}

#[test]
fn points_that_leave_the_same_state_are_one() {
    let record = "a before x\na after x\na before y\nb before z\na during y\na after y\nb after z\n\
        a before x\na after x\na before x\na after x\n";
    let points: Vec<String> = points(record, 2).iter().map(Point::to_string).collect();
    let expected = [
        "a:1 before x #1",
        "a:2 after x #1",
        "b:1 before z #1",
        "a:4 during y #1",
        "a:5 after y #1",
        "b:2 after z #1",
        "a:7 after x #2",
    ];
    assert_eq!(points, expected);
}
