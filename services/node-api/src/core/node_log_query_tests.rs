use super::*;

fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.into_owned().collect()
}

/// The status code and the message of a query; files are missing.
fn answer(query: &str) -> (u16, String) {
    let missing = |file: &str| Err(format!("statat {file}: no such file or directory"));
    match parse(&pairs(query)) {
        Err(message) => (400, message),
        Ok(None) => (0, String::new()),
        Ok(Some(query)) => match query.validate(missing) {
            Err(message) => (406, message),
            Ok(()) => (200, String::new()),
        },
    }
}

#[test]
fn queries_are_refused_in_the_words_of_upstream() {
    for (query, code, message) in [
        ("", 0, ""),
        ("other=x", 0, ""),
        ("query=kubelet", 200, ""),
        ("query=-x&boot=-1&tailLines=0&pattern=a%2Bb", 200, ""),
        ("query=a&sinceTime=2026-01-02T03:04:05%2B02:00", 200, ""),
        (
            "query=%20",
            400,
            "query: Invalid value: [\" \"]: may not be empty",
        ),
        (
            "query=a&sinceTime=now",
            400,
            "sinceTime: Invalid value: \"now\": invalid time format",
        ),
        (
            "query=a&boot=x&tailLines=99999999999999999999",
            400,
            "[boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax, tailLines: Invalid value: \
             \"99999999999999999999\": strconv.Atoi: parsing \"99999999999999999999\": value out of range]",
        ),
        (
            "tailLines=1",
            406,
            "query: Required value: cannot be empty with options",
        ),
        (
            "query=a%20b",
            406,
            "query: Invalid value: \"a b\": input contains unsupported characters",
        ),
        (
            "query=a&query=a&query=a&query=a&query=a",
            406,
            "query: Too many: 5: must have at most 4 items",
        ),
        (
            "query=a&query=b/c",
            406,
            "query: Invalid value: \"[b/c], [a]\": cannot specify a file and service",
        ),
        (
            "query=a/b&query=b/c",
            406,
            "query: Invalid value: [\"a/b\",\"b/c\"]: cannot specify more than one file",
        ),
        (
            "query=a/b&boot=0",
            406,
            "query: Invalid value: [\"a/b\"]: cannot specify file with options",
        ),
        (
            "query=a/b",
            406,
            "query: Invalid value: [\"a/b\"]: statat a/b: no such file or directory",
        ),
        (
            "query=a&boot=1",
            406,
            "boot: Invalid value: 1: must be less than 1",
        ),
        (
            "query=a&tailLines=-1",
            406,
            "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
        ),
        (
            "query=a&pattern=(",
            406,
            "pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`",
        ),
        (
            "query=a&sinceTime=2026-01-02T03:04:06Z&untilTime=2026-01-02T03:04:05Z",
            406,
            "untilTime: Invalid value: \"2026-01-02T03:04:05Z\": must be after `sinceTime`",
        ),
    ] {
        assert_eq!(answer(query), (code, message.to_owned()), "{query}");
    }
    let long = answer(&format!("query={}", "a".repeat(257)));
    assert!(long.1.ends_with("length must be less than 256"), "{long:?}");
    let deep = answer(&format!("query=a&pattern={}", "(".repeat(100_000)));
    assert_eq!(deep.0, 406);
}

#[test]
fn no_value_is_an_option_of_journalctl() {
    let query =
        "query=--root&pattern=--file&boot=-1&tailLines=5&sinceTime=2026-01-02T03:04:05%2B02:00";
    let query = parse(&pairs(query)).unwrap().unwrap();
    let arguments = query.options.arguments(&query.services);
    let expected = [
        "--utc",
        "--no-pager",
        "--output=short-precise",
        "--since=2026-1-2 3:4:5",
        "--pager-end",
        "--lines=5",
        "--unit=--root",
        "--grep=--file",
        "--boot=-1",
    ];
    assert_eq!(arguments, expected);
}
