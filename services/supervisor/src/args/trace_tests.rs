use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: TraceArgs,
}

fn parsed(line: &str) -> Result<TraceArgs, String> {
    let words = std::iter::once("trace").chain(line.split(' '));
    let words = words.filter(|word| !word.is_empty());
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(cli.args)
}

#[test]
fn pods_are_distinguished_from_commands() {
    let pod = |line: &str| parsed(line).map(|args| args.pod);
    assert_eq!(pod("web"), Ok(Some("web".to_owned())));
    assert_eq!(pod("default/list"), Ok(Some("default/list".to_owned())));
    assert_eq!(pod("help"), Ok(Some("help".to_owned())));
    assert_eq!(pod("list"), Ok(None));
    assert!(matches!(
        parsed("list").map(|args| args.command),
        Ok(Some(TraceCommand::List(_)))
    ));
    assert!(pod("").is_err());
}

#[test]
fn filters_are_parsed() {
    let filter = |line: &str| match parsed(&format!("list {line}"))?.command {
        Some(TraceCommand::List(args)) => Ok(args.filter.filter()),
        _ => Err("another command".to_owned()),
    };
    let starts = TraceFilter {
        root: Some("pod.start".to_owned()),
        ..TraceFilter::default()
    };
    assert_eq!(filter(""), Ok(starts));
    let all = filter("--root all --since 2026-01-31T12:00:00Z --until 1h --slower-than 1.5s");
    let all = all.unwrap();
    assert_eq!(all.root, None);
    assert_eq!(all.since.unwrap().to_string(), "2026-01-31T12:00:00Z");
    let age = Timestamp::now()
        .duration_since(all.until.unwrap())
        .as_secs();
    assert!((3_600..3_660).contains(&age), "{age}");
    assert_eq!(all.slower_than, Some(Duration::from_millis(1_500)));
    let versions = filter("--version polylet-pleg=0.1.0 --version prober=0.2.0").unwrap();
    assert_eq!(versions.versions["pleg"], "0.1.0");
    assert_eq!(versions.versions["prober"], "0.2.0");
    for (line, expected) in [
        ("--since soon", "expected a time such as"),
        ("--version pleg", "expected SERVICE=VERSION"),
        ("--version =1", "expected SERVICE=VERSION"),
        ("--slower-than fast", "--slower-than"),
    ] {
        let error = filter(line).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn changes_are_parsed() {
    let changes = |line: &str| match parsed(&format!("top {line}"))?.command {
        Some(TraceCommand::Top(args)) => Ok(args.what_if),
        _ => Err("another command".to_owned()),
    };
    let change = |step: &str, is_faster, millis| StepChange {
        step: step.to_owned(),
        is_faster,
        by: Duration::from_millis(millis),
    };
    let found = changes("--what-if cri.X=-50ms --what-if a/b=+1s --what-if c=2ms").unwrap();
    let expected = [
        change("cri.X", true, 50),
        change("a/b", false, 1_000),
        change("c", false, 2),
    ];
    assert_eq!(found, expected);
    for wrong in ["cri.X", "=-50ms", "cri.X=-fast"] {
        let error = changes(&format!("--what-if {wrong}")).unwrap_err();
        assert!(error.contains("expected STEP=CHANGE"), "{error}");
    }
}

#[test]
fn sets_are_files_times_or_versions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a=b..c");
    std::fs::write(&file, "").unwrap();
    let kind = |text: &str| trace_set(text).map(|set| set.kind);
    let path = file.to_str().unwrap();
    assert_eq!(kind(path), Ok(TraceSetKind::File(file.clone())));
    assert_eq!(kind("/nowhere"), Ok(TraceSetKind::File("/nowhere".into())));
    let version = TraceSetKind::Version {
        service: "sync-coordinator".to_owned(),
        version: "0.2.0".to_owned(),
    };
    assert_eq!(kind("sync-coordinator=0.2.0"), Ok(version));
    let window = TraceSetKind::Window {
        since: None,
        until: "2026-01-31T12:00:00Z".parse().ok(),
    };
    assert_eq!(kind("..2026-01-31T12:00:00Z"), Ok(window));
    assert!(matches!(
        kind("2h..1h"),
        Ok(TraceSetKind::Window { since: Some(since), until: Some(until) }) if since < until
    ));
    assert!(kind("soon..later").unwrap_err().contains("expected a time"));
}
