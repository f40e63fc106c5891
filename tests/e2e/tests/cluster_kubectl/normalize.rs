//! The output of commands as lines that do not depend on the node and the time.

use polylet_e2e::kubelet_parity::patterns;

/// Beginnings of names that go on at random.
const RANDOM: [&str; 5] = [
    "kube-api-access-",
    "node-debugger-NODE-",
    "cni-",
    "app-",
    "each-",
];

/// The lines of an output. `names` are replaced first.
pub(crate) fn lines(text: &str, names: &[(&str, &str)]) -> Vec<String> {
    let mut text = text.replace('\r', "");
    for (name, placeholder) in names {
        text = text.replace(name, placeholder);
    }
    text.lines().map(line).collect()
}

fn line(line: &str) -> String {
    let line = undated(without_log_header(line));
    let line = patterns::blank(&line);
    let indented = line.len() - line.trim_start().len();
    let (indent, rest) = line.split_at(indented);
    let mut out = indent.to_owned();
    let mut rest = rest.trim_end();
    while !rest.is_empty() {
        let end = rest.find([' ', '\t']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(&blank_word(word));
        let next = after.trim_start();
        // The width of a column is that of its longest value.
        let gap = after.len() - next.len();
        out.push_str(["", " ", "  "][gap.min(2)]);
        rest = next;
    }
    without_count(without_restarts(out))
}

/// How often a container was restarted depends on the time: `3 (5s ago)`.
fn without_restarts(line: String) -> String {
    let Some((before, after)) = line.split_once(" (AGE ago)") else {
        return line;
    };
    let kept = before.trim_end_matches(|letter: char| letter.is_ascii_digit());
    format!("{kept}N (AGE ago){after}")
}

/// Errors of kubectl's libraries begin with a time, a process id and a source line.
fn without_log_header(line: &str) -> &str {
    let mut letters = line.chars();
    let is_log = letters.next().is_some_and(|letter| "EWI".contains(letter))
        && letters.take(4).filter(char::is_ascii_digit).count() == 4;
    match line.split_once("] ").filter(|_| is_log) {
        Some((_, message)) => message,
        None => line,
    }
}

/// `Tue, 24 Nov 2026 23:42:13 +0000`, as kubectl writes times.
fn undated(line: &str) -> String {
    const LENGTH: usize = "Tue, 24 Nov 2026 23:42:13".len();
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(" +0000") {
        match before.len().checked_sub(LENGTH) {
            Some(at) if before.is_char_boundary(at) => {
                out.push_str(&before[..at]);
                out.push_str("DATE");
            }
            _ => out.push_str(before),
        }
        rest = after;
    }
    out + rest
}

fn blank_word(word: &str) -> String {
    let core = word.trim_matches(['(', ')', ',']);
    if is_age(core) {
        return word.replace(core, "AGE");
    }
    for prefix in RANDOM {
        let Some(at) = word.find(prefix) else {
            continue;
        };
        let (before, rest) = word.split_at(at + prefix.len());
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let is_start = !word[..at].ends_with(|letter: char| letter.is_alphanumeric());
        if is_start && end != Some(0) && !rest.is_empty() {
            return format!("{before}RANDOM{}", &rest[end.unwrap_or(rest.len())..]);
        }
    }
    word.to_owned()
}

/// `12s`, `3m4s`, `5d`.
fn is_age(word: &str) -> bool {
    let mut digits = 0;
    let mut units = 0;
    for letter in word.chars() {
        match letter {
            '0'..='9' => digits += 1,
            's' | 'm' | 'h' | 'd' if digits > 0 => (digits, units) = (0, units + 1),
            _ => return false,
        }
    }
    units > 0 && digits == 0
}

/// How often an event occurred depends on the time: `5s (x2 over 6s)`.
fn without_count(line: String) -> String {
    let Some((before, after)) = line.split_once("AGE (x") else {
        return line;
    };
    match after.split_once(')') {
        Some((_, rest)) => format!("{before}AGE{rest}"),
        None => line,
    }
}

#[test]
fn lines_do_not_depend_on_the_run() {
    let names = [("pnode", "NODE")];
    for (text, expected) in [
        (
            "web   1/1     Running   2 (3m4s ago)   5s\r",
            "web  1/1  Running  N (AGE ago)  AGE",
        ),
        (
            "  Normal  Pulled  5s (x2 over 16s)  kubelet  done",
            "  Normal  Pulled  AGE  kubelet  done",
        ),
        (
            "Start Time:  Tue, 24 Nov 2026 23:42:13 +0000",
            "Start Time:  DATE",
        ),
        (
            "pod/app-5d8f7c-x2x4z and app-, pnode",
            "pod/app-RANDOM and app-, NODE",
        ),
        (
            "E1124 23:42:13.12 77 portforward.go:5] \"Unhandled\" x",
            "\"Unhandled\" x",
        ),
        ("IP:  10.203.1.7", "IP:  IP"),
    ] {
        assert_eq!(lines(text, &names), [expected]);
    }
}
