/// Which specs run.
#[derive(Debug, Clone)]
pub(crate) enum SpecSelection {
    /// These, each of which must run.
    Names(Vec<&'static str>),
    /// All whose names match a regular expression.
    Matching(String),
}

impl SpecSelection {
    /// The regular expression for the suite.
    pub(crate) fn regex(&self) -> String {
        match self {
            Self::Matching(regex) => regex.clone(),
            // The suite puts its own title before the names.
            Self::Names(names) => {
                let names: Vec<String> = names.iter().map(|name| escaped(name)).collect();
                format!("(?:{})$", names.join("|"))
            }
        }
    }

    /// Names of specs that must have run.
    pub(crate) fn required(&self) -> &[&'static str] {
        match self {
            Self::Names(names) => names,
            Self::Matching(_) => &[],
        }
    }
}

/// The specs of the cluster's suite that a real kubelet passes in this testbed.
pub(crate) fn of_cluster() -> Vec<&'static str> {
    lines(include_str!("../specs/e2e.txt"))
}

/// The same of the node's suite, without those about what Polylet does not do yet.
pub(crate) fn of_node() -> Vec<&'static str> {
    lines(include_str!("../specs/node.txt"))
}

/// Those of [`of_cluster`] that take a few minutes together.
pub(crate) fn short_of_cluster() -> Vec<&'static str> {
    lines(include_str!("../specs/short.txt"))
}

fn lines(text: &'static str) -> Vec<&'static str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

/// A regular expression that matches this text.
fn escaped(text: &str) -> String {
    let mut regex = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_no_duplicates_and_the_short_one_is_a_part() {
        let (all, short) = (of_cluster(), short_of_cluster());
        assert!(short.iter().all(|name| all.contains(name)));
        for list in [all, short, of_node()] {
            let mut unique = list.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), list.len());
            assert!(!list.is_empty());
        }
    }

    #[test]
    fn names_are_matched_literally_and_to_their_end() {
        let selection = SpecSelection::Names(vec![r#"[sig] a *b* (c, "d.e")"#, "[sig] f"]);
        assert_eq!(
            selection.regex(),
            r#"(?:\[sig\] a \*b\* \(c, "d\.e"\)|\[sig\] f)$"#
        );
        assert_eq!(selection.required().len(), 2);
    }
}
