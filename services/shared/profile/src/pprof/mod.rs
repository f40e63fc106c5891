//! A profile out of stacks: equal ones are one sample, and equal texts are stored once. Pure.

mod message;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use message::ProfileMessage;

use self::message::{
    FunctionMessage, LineMessage, LocationMessage, MappingMessage, SampleMessage, ValueTypeMessage,
};
use crate::symbols::SourceFrame;

/// The only mapping: the names of functions are in the profile.
const PROGRAM: u64 = 1;

/// A name of values, and their unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueKind {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
}

/// What a profile says of itself.
#[derive(Debug)]
pub(crate) struct ProfileHeader {
    /// The program's path.
    pub(crate) program: String,
    /// Since the epoch.
    pub(crate) started_at: Duration,
    pub(crate) duration: Duration,
    /// What the values of each stack are.
    pub(crate) values: Vec<ValueKind>,
    pub(crate) period_of: ValueKind,
    pub(crate) period: i64,
    pub(crate) comments: Vec<String>,
}

/// A stack, innermost address first, and its values.
#[derive(Debug)]
pub(crate) struct WeightedStack<'a> {
    pub(crate) frames: &'a [usize],
    pub(crate) values: Vec<i64>,
}

/// The profile of stacks, with the functions at their addresses.
pub(crate) fn build<'a>(
    header: &ProfileHeader,
    stacks: impl Iterator<Item = WeightedStack<'a>>,
    frames: &BTreeMap<usize, Vec<SourceFrame>>,
) -> ProfileMessage {
    let mut samples: BTreeMap<&[usize], Vec<i64>> = BTreeMap::new();
    for stack in stacks {
        let values = samples.entry(stack.frames).or_default();
        values.resize(stack.values.len(), 0);
        for (sum, value) in values.iter_mut().zip(stack.values) {
            *sum = sum.saturating_add(value);
        }
    }
    let mut texts = ProfileStrings::default();
    let mut places = Locations::default();
    let sample = samples.into_iter().map(|(addresses, value)| SampleMessage {
        location_id: addresses
            .iter()
            .map(|address| places.id(*address, frames, &mut texts))
            .collect(),
        value,
    });
    let sample = sample.collect();
    let mut value_type = |kind: ValueKind| ValueTypeMessage {
        r#type: texts.position(kind.name),
        unit: texts.position(kind.unit),
    };
    ProfileMessage {
        sample_type: header.values.iter().copied().map(&mut value_type).collect(),
        period_type: Some(value_type(header.period_of)),
        period: header.period,
        sample,
        mapping: vec![MappingMessage {
            id: PROGRAM,
            filename: texts.position(&header.program),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        }],
        location: places.locations,
        function: places.functions,
        time_nanos: nanoseconds(header.started_at),
        duration_nanos: nanoseconds(header.duration),
        comment: header
            .comments
            .iter()
            .map(|comment| texts.position(comment))
            .collect(),
        string_table: texts.into_strings(),
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Texts, each once. The empty one is the first.
#[derive(Default)]
struct ProfileStrings {
    positions: BTreeMap<String, i64>,
    strings: Vec<String>,
}

impl ProfileStrings {
    fn position(&mut self, text: &str) -> i64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(position) = self.positions.get(text) {
            return *position;
        }
        self.strings.push(text.to_owned());
        let position = i64::try_from(self.strings.len()).unwrap_or(i64::MAX);
        self.positions.insert(text.to_owned(), position);
        position
    }

    fn into_strings(self) -> Vec<String> {
        std::iter::once(String::new()).chain(self.strings).collect()
    }
}

/// Locations and functions, each once. Identifiers count from one.
#[derive(Default)]
struct Locations {
    location_ids: BTreeMap<usize, u64>,
    locations: Vec<LocationMessage>,
    function_ids: BTreeMap<(i64, i64), u64>,
    functions: Vec<FunctionMessage>,
}

impl Locations {
    /// The identifier of an address.
    fn id(
        &mut self,
        address: usize,
        frames: &BTreeMap<usize, Vec<SourceFrame>>,
        texts: &mut ProfileStrings,
    ) -> u64 {
        if let Some(id) = self.location_ids.get(&address) {
            return *id;
        }
        let found = frames.get(&address).map(Vec::as_slice).unwrap_or_default();
        let line = found.iter().filter(|frame| !frame.function.is_empty());
        let line = line.map(|frame| LineMessage {
            function_id: self.function(frame, texts),
            line: i64::from(frame.line),
        });
        let line = line.collect();
        let id = identifier(self.locations.len());
        self.locations.push(LocationMessage {
            id,
            mapping_id: PROGRAM,
            address: u64::try_from(address).unwrap_or(u64::MAX),
            line,
        });
        self.location_ids.insert(address, id);
        id
    }

    fn function(&mut self, frame: &SourceFrame, texts: &mut ProfileStrings) -> u64 {
        let name = texts.position(&frame.function);
        let filename = texts.position(&frame.file);
        let functions = &mut self.functions;
        *self
            .function_ids
            .entry((name, filename))
            .or_insert_with(|| {
                let id = identifier(functions.len());
                functions.push(FunctionMessage {
                    id,
                    name,
                    system_name: name,
                    filename,
                });
                id
            })
    }
}

fn identifier(position: usize) -> u64 {
    u64::try_from(position)
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> SourceFrame {
        SourceFrame {
            function: function.to_owned(),
            file: "a.rs".to_owned(),
            line,
        }
    }

    #[test]
    fn equal_stacks_are_one_sample_and_texts_are_stored_once() {
        let header = ProfileHeader {
            program: "/usr/bin/polylet".to_owned(),
            started_at: Duration::from_nanos(7),
            duration: Duration::from_secs(1),
            values: vec![
                ValueKind {
                    name: "samples",
                    unit: "count",
                },
                ValueKind {
                    name: "cpu",
                    unit: "nanoseconds",
                },
            ],
            period_of: ValueKind {
                name: "cpu",
                unit: "nanoseconds",
            },
            period: 10,
            comments: vec!["a.rs".to_owned()],
        };
        // The second address is a function inlined into another; the third has no name.
        let frames = BTreeMap::from([
            (1, vec![frame("f", 3)]),
            (2, vec![frame("f", 4), frame("g", 5)]),
            (3, vec![]),
        ]);
        let stacks: [&[usize]; 3] = [&[1, 2], &[3], &[1, 2]];
        let stacks = stacks.into_iter().map(|frames| WeightedStack {
            frames,
            values: vec![1, 10],
        });
        let profile = build(&header, stacks, &frames);
        let text = |position: i64| {
            let position = usize::try_from(position).unwrap();
            profile.string_table[position].as_str()
        };
        assert_eq!(profile.string_table[0], "");
        let sizes = profile
            .string_table
            .iter()
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(
            sizes.len(),
            profile.string_table.len(),
            "{:?}",
            profile.string_table
        );
        let samples: Vec<_> = profile
            .sample
            .iter()
            .map(|s| (&s.location_id[..], &s.value[..]))
            .collect();
        assert_eq!(samples, [(&[1, 2][..], &[2, 20][..]), (&[3], &[1, 10])]);
        let functions: Vec<_> = profile
            .function
            .iter()
            .map(|f| (f.id, text(f.name), text(f.filename)))
            .collect();
        assert_eq!(functions, [(1, "f", "a.rs"), (2, "g", "a.rs")]);
        let lines: Vec<Vec<_>> = profile
            .location
            .iter()
            .map(|l| {
                l.line
                    .iter()
                    .map(|line| (line.function_id, line.line))
                    .collect()
            })
            .collect();
        assert_eq!(lines, [vec![(1, 3)], vec![(1, 4), (2, 5)], vec![]]);
        let types: Vec<_> = profile
            .sample_type
            .iter()
            .map(|t| (text(t.r#type), text(t.unit)))
            .collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
        assert_eq!(text(profile.comment[0]), "a.rs");
        assert_eq!(
            (profile.time_nanos, profile.duration_nanos, profile.period),
            (7, 1_000_000_000, 10)
        );
    }
}
