use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn expanded<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let bytes = expand(text, usize::MAX, |name| lookup(name).map(str::as_bytes));
    String::from_utf8(bytes.unwrap()).unwrap()
}

fn text(env: &Environment, name: &str) -> Option<String> {
    let value = env.get(name)?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// The table of upstream's test in `third_party/forked/golang/expansion`.
#[test]
fn expansion_as_upstream() {
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
        ("$(VAR_A)$(VAR_A", "A$(VAR_A"),
        ("$$$$$$$(VAR_A)", "$$$A"),
        ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
        ("$(VAR_A)$", "A$"),
        ("$()", "$()"),
        (")$(", ")$("),
        ("", ""),
    ] {
        assert_eq!(expanded(input, lookup), expected, "{input}");
    }
}

#[test]
fn expansion_stops_at_its_limit() {
    let lookup = |_: &str| Some(&b"four"[..]);
    for (text, length) in [("four", 4), ("$(A)", 4), ("$$$$$$$$", 4), ("$(A)$(A)x", 9)] {
        assert!(expand(text, length, lookup).is_ok(), "{text}");
        let limit = length - 1;
        let error = ExpansionTooLarge { limit };
        assert_eq!(expand(text, limit, lookup), Err(error), "{text}");
    }
}

/// A megabyte of unclosed references took a minute when each searched for its end.
#[test]
fn unclosed_references_take_linear_time() {
    let unclosed = "$(".repeat(1 << 19);
    let began = Instant::now();
    assert_eq!(expanded(&unclosed, |_| None), unclosed);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn setting_a_variable_again_replaces_it_in_place() {
    let mut env = Environment::new();
    env.set("A", b"1").unwrap();
    env.set_expanded("B", "$(A)$(B)").unwrap();
    env.set("A", b"2").unwrap();
    assert_eq!(
        env.into_vec(),
        [("A".into(), b"2".to_vec()), ("B".into(), b"1$(B)".to_vec())]
    );
}

#[test]
fn bytes_that_are_no_text_are_unchanged() {
    let mut env = Environment::new();
    env.set("SECRET", &[0xff, 0, b'x']).unwrap();
    env.set_expanded("B", "<$(SECRET)>").unwrap();
    assert_eq!(env.get("B"), Some(&[b'<', 0xff, 0, b'x', b'>'][..]));
}

#[test]
fn fallback_variables_can_be_referred_to_and_come_last() {
    let fallback = [("S", "service"), ("A", "hidden")];
    let fallback = fallback.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut env = Environment::with_fallback(fallback.into());
    env.set_expanded("A", "$(S)").unwrap();
    env.add_fallback().unwrap();
    assert_eq!(text(&env, "A").as_deref(), Some("service"));
    let names: Vec<String> = env.into_vec().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["A", "S"]);
}

/// `V0` of 1 KiB, then thirty variables of twice the one before: 1 TiB.
#[test]
fn variables_that_double_each_other_exceed_the_limit() {
    let mut env = Environment::new();
    env.set("V0", &[b'x'; 1024]).unwrap();
    let double = |env: &mut Environment, n: u32| {
        let previous = n - 1;
        env.set_expanded(&format!("V{n}"), &format!("$(V{previous})$(V{previous})"))
    };
    let failed = (1..=30).find_map(|n| double(&mut env, n).err().map(|error| (n, error)));
    let (n, error) = failed.unwrap();
    // 1 + 2 + … + 4096 KiB fit, and 8192 more do not.
    assert_eq!(n, 13);
    assert_eq!(
        error.to_string(),
        "variable \"V13\" exceeds the limit of 8388608 bytes for environment variables, command and arguments"
    );
}

#[test]
fn many_large_values_exceed_the_limit() {
    let large = vec![b'x'; 1 << 20];
    let mut env = Environment::new();
    let failed = (0..10_000).find(|n| env.set(&format!("V{n}"), &large).is_err());
    assert_eq!(failed, Some(7));
}

#[test]
fn arguments_count_with_the_variables() {
    let mut env = Environment::new();
    env.set("A", &vec![b'x'; 3 << 20]).unwrap();
    let at = || "args[1]".to_owned();
    env.expand_argument("$(A)", at).unwrap();
    let error = env.expand_argument("$(A)", at).unwrap_err();
    assert_eq!(error, EnvironmentTooLarge::Process { at: at() });
}

/// Replaced values take no memory; the work for them is bounded.
#[test]
fn replaced_values_count_as_work_only() {
    let mut env = Environment::new();
    env.set("A", &vec![b'x'; 1 << 20]).unwrap();
    let mut replace = || env.set_expanded("B", "$(A)$(A)$(A)");
    let failed = (0..1000).find_map(|n| replace().err().map(|error| (n, error)));
    let at = "variable \"B\"".to_owned();
    assert_eq!(failed, Some((21, EnvironmentTooLarge::Expansion { at })));
}

#[test]
fn long_names_are_cut_in_errors() {
    let mut env = Environment::new();
    let name = "é".repeat(MAX_PROCESS_BYTES);
    let error = env.set(&name, b"").unwrap_err().to_string();
    assert!(error.len() < 500, "{}", error.len());
}

/// 70,000 variables, as many as fit into a manifest, took seconds when each was searched in a list.
#[test]
fn many_variables_are_set_in_short_time() {
    let began = Instant::now();
    let mut env = Environment::new();
    for n in 0..70_000 {
        env.set_expanded(&format!("V{n}"), "$(V1)").unwrap();
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

proptest! {
    #[test]
    fn text_without_a_dollar_is_unchanged(text in "[^$]*") {
        prop_assert_eq!(expanded(&text, |_| Some("x")), text);
    }

    #[test]
    fn escaped_dollars_are_unescaped(text in ".*") {
        prop_assert_eq!(expanded(&text.replace('$', "$$"), |_| Some("x")), text);
    }

    /// Whatever refers to whatever, in any order: the limits hold after every call.
    #[test]
    fn no_environment_exceeds_its_limits(
        sizes in prop::collection::vec(0usize..1 << 20, 1..8),
        texts in prop::collection::vec((0usize..24, prop::collection::vec(0usize..24, 0..6)), 0..80),
    ) {
        let mut env = Environment::new();
        for (n, size) in sizes.iter().enumerate() {
            let _ = env.set(&format!("V{n}"), &vec![b'x'; *size]);
        }
        for (n, references) in texts {
            let text: String = references.iter().map(|n| format!("$(V{n})")).collect();
            let failed = env.set_expanded(&format!("V{n}"), &text).is_err();
            let held: usize = env.variables.iter().map(|(n, v)| process_bytes(n, v.len())).sum();
            prop_assert!(held <= MAX_PROCESS_BYTES);
            prop_assert!(env.expanded_bytes <= MAX_EXPANSION_BYTES);
            if failed {
                break;
            }
            prop_assert_eq!(held, env.process_bytes);
        }
    }
}

#[test]
fn prepended_variables_yield_to_those_that_are_set() {
    let mut env = Environment::new();
    env.set("B", b"own").unwrap();
    env.set_expanded("C", "$(A)").unwrap();
    let devices = [("A", "device"), ("B", "device")];
    let devices = devices.map(|(name, value)| (name.to_owned(), value.to_owned()));
    env.prepend(&devices.into()).unwrap();
    assert_eq!(text(&env, "A").unwrap(), "device");
    assert_eq!(text(&env, "B").unwrap(), "own");
    assert_eq!(text(&env, "C").unwrap(), "$(A)", "set before");
    let expanded = env.expand_argument("$(A) $(B)", || "args[0]".to_owned());
    assert_eq!(expanded.unwrap(), b"device own");
    let names: Vec<_> = env.into_vec().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["A", "B", "B", "C"]);
}

#[test]
fn prepended_variables_count_for_the_limit() {
    let mut env = Environment::new();
    let large = "x".repeat(MAX_PROCESS_BYTES);
    let error = env.prepend(&[("A".to_owned(), large)].into()).unwrap_err();
    assert!(matches!(error, EnvironmentTooLarge::Process { at } if at.contains("\"A\"")));
}
