//! `$(VAR)` expansion in environment, command and arguments.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by what `lookup` says of NAME. `$$` stands for one `$`, so
/// that `$$(NAME)` is left as `$(NAME)`; a name that is unknown, and anything
/// that is no reference, stays as it is written.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

/// Variables in the order in which they were set; a later one of the same name
/// takes the earlier one's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    own: Vec<(String, String)>,
    /// What may be referred to as well, and is added last.
    others: BTreeMap<String, String>,
}

impl Environment {
    /// An empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// An environment beside variables that nobody set: those of Services.
    pub fn beside(others: BTreeMap<String, String>) -> Self {
        Environment {
            own: Vec::new(),
            others,
        }
    }

    /// Adds those that nobody set.
    pub fn add_others(&mut self) {
        for (name, value) in std::mem::take(&mut self.others) {
            if self.get(&name).is_none() {
                self.own.push((name, value));
            }
        }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.own.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.own.push((name, value)),
        }
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.own
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Expands references to the variables set so far.
    pub fn expand(&self, text: &str) -> String {
        expand(text, |name| {
            self.get(name)
                .or_else(|| self.others.get(name).map(String::as_str))
        })
    }

    /// All variables in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All variables in their order.
    pub fn into_vec(self) -> Vec<(String, String)> {
        self.own
    }
}

/// Whether a key may become a variable: everything printable but `=`, as the
/// API accepts it (relaxed validation, on since 1.32).
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Upstream's table (third_party/forked/golang/expansion).
    #[test]
    fn expansion_is_upstreams() {
        let vars = [
            ("VAR_A", "A"),
            ("VAR_B", "B"),
            ("VAR_C", "C"),
            ("VAR_REF", "$(VAR_A)"),
            ("VAR_EMPTY", ""),
        ];
        let lookup = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        for (input, expected) in [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("___$(VAR_C)", "___C"),
            ("$(VAR_A)-$(VAR_A)", "A-A"),
            ("$(VAR_A)-1", "A-1"),
            ("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("foo\\$(VAR_C)bar", "foo\\Cbar"),
            ("foo\\\\$(VAR_C)bar", "foo\\\\Cbar"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
            ("$(MISSING)", "$(MISSING)"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
            ("$(VAR_A)$", "A$"),
            ("$()", "$()"),
            ("", ""),
        ] {
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
    }

    #[test]
    fn a_later_variable_takes_the_earlier_ones_place() {
        let mut env = Environment::new();
        env.set("A", "1");
        env.set("B", env.expand("$(A)$(B)"));
        env.set("A", "2");
        assert_eq!(
            env.into_vec(),
            [("A".into(), "2".into()), ("B".into(), "1$(B)".into())]
        );
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_is_left_alone(text in "[^$]*") {
            prop_assert_eq!(expand(&text, |_| Some("x")), text);
        }
        #[test]
        fn doubled_dollars_give_the_text_back(text in ".*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), |_| Some("x")), text);
        }
    }
}
