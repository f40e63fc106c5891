//! Names and their documentation: standard terms, one meaning each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use polylet_tidy::syntax::{doc_lines, sources};
use polylet_tidy::{files, root};

/// Type names that mean nothing to a reader who does not know the code.
const VAGUE_TYPES: &[&str] = &[
    "About", "Answer", "Asked", "Asking", "Book", "Desk", "Ear", "Ended", "Facts", "Found",
    "Given", "Hands", "Heard", "Held", "Holds", "Keeper", "Kept", "Known", "Life", "Look",
    "Looked", "Means", "News", "Outside", "Part", "Place", "Room", "Said", "Says", "Seen", "Slot",
    "Stands", "Teller", "Told", "Trouble", "Underway", "Wanted", "Way", "Whole", "Whose", "Wish",
    "Words",
];

/// Vague file and module names.
const VAGUE_FILES: &[&str] = &[
    "alone",
    "desk",
    "heard",
    "hands",
    "keep",
    "kept",
    "leftovers",
    "looks",
    "namesakes",
    "news",
    "outside",
    "place",
    "room",
    "rooms",
    "told",
    "teller",
    "telling",
    "trouble",
    "underway",
    "whose",
    "words",
];

/// Conventional names that every crate may define.
const CONVENTIONS: &[&str] = &[
    "Action",
    "Client",
    "Config",
    "Error",
    "Event",
    "EventLoop",
    "Input",
    "Key",
    "Plan",
    "Result",
    "Server",
    "State",
];

const CRATES: &[&str] = &["services", "tests"];

#[test]
fn type_names_are_not_vague() {
    let sources = sources(CRATES);
    let mut wrong = Vec::new();
    for file in &sources {
        let types = file.types();
        let vague = types
            .iter()
            .filter(|name| VAGUE_TYPES.contains(&name.as_str()));
        wrong.extend(vague.map(|name| format!("{}: {name}", file.path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn file_names_are_not_vague() {
    let mut wrong = Vec::new();
    for dir in CRATES {
        for path in files(&root().join(dir), "rs") {
            let path = path.strip_prefix(root()).unwrap_or(&path);
            let vague = path.iter().filter_map(|part| part.to_str()).any(|part| {
                let name = part.trim_end_matches(".rs").trim_end_matches("_tests");
                VAGUE_FILES.contains(&name)
            });
            if vague {
                wrong.push(path.display().to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// No type name is defined in more than one crate.
#[test]
fn type_names_are_unique_across_crates() {
    let sources = sources(CRATES);
    let mut defined: BTreeMap<String, BTreeMap<&str, String>> = BTreeMap::new();
    for file in &sources {
        for name in file.types() {
            let crates = defined.entry(name).or_default();
            crates.insert(&file.krate, file.path.display().to_string());
        }
    }
    defined.retain(|name, crates| crates.len() > 1 && !CONVENTIONS.contains(&name.as_str()));
    assert!(
        defined.is_empty(),
        "defined in more than one crate: {defined:#?}"
    );
}

/// A one-word comment such as `/// It.` adds nothing to the item's name.
#[test]
fn documentation_is_more_than_one_word() {
    let mut wrong = Vec::new();
    for dir in CRATES.iter().chain(&["proto"]) {
        for path in files(&root().join(dir), "rs") {
            let lines = doc_lines(&path);
            let numbers: BTreeSet<usize> = lines.iter().map(|(number, _)| *number).collect();
            for (number, text) in &lines {
                let is_alone = !numbers.contains(&(number - 1)) && !numbers.contains(&(number + 1));
                // A literal such as `<root>/pods/<uid>/volumes` is informative.
                let is_literal = text.starts_with('`');
                if is_alone && !is_literal && text.split_whitespace().count() < 2 {
                    let path = path.strip_prefix(root()).unwrap_or(&path);
                    wrong.push(format!("{}:{number}: {text}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same for comments in .proto files.
#[test]
fn wire_comments_are_more_than_one_word() {
    let mut wrong = Vec::new();
    for path in files(&root().join("proto/polylet"), "proto") {
        let text = fs::read_to_string(&path).expect("a wire file");
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("// ");
            if comment.is_some_and(|text| text.ends_with('.') && !text.contains(' ')) {
                let previous = text.lines().nth(number.wrapping_sub(1)).unwrap_or_default();
                if !previous.trim_start().starts_with("//") {
                    wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
