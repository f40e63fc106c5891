use super::*;
use crate::core::upgrade::program::{DeclaredFile, DeclaredFormat, NeededPackage, ServedPackage};

fn program(service: &str, level: u32, calls: &[(&str, u32)]) -> ProgramDescriptor {
    ProgramDescriptor {
        service: service.to_owned(),
        version: "0.2.0".to_owned(),
        serves: vec![ServedPackage {
            package: format!("polylet.{service}.v1"),
            level,
        }],
        calls: calls
            .iter()
            .map(|(callee, level)| NeededPackage {
                service: (*callee).to_owned(),
                package: format!("polylet.{callee}.v1"),
                level: *level,
            })
            .collect(),
        state_files: Vec::new(),
    }
}

fn with_file(mut program: ProgramDescriptor, oldest_read: u32, written: u32) -> ProgramDescriptor {
    program.state_files.push(DeclaredFile {
        path: "state:x.json".to_owned(),
        format: Some(DeclaredFormat {
            written,
            oldest_read,
        }),
    });
    program
}

fn running() -> RunningPrograms {
    [
        program("pleg", 2, &[]),
        program("prober", 2, &[("pleg", 2)]),
    ]
    .map(|program| (program.service.clone(), program))
    .into()
}

fn checked(programs: &[ProgramDescriptor]) -> Vec<String> {
    let named = programs.iter().map(|one| (one.service.as_str(), one));
    let found = check(named, running());
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn edges_that_do_not_fit_are_named() {
    let too_low = |caller: &str, callee: &str, needed: u32, served: u32| {
        vec![format!(
            "{caller} needs polylet.{callee}.v1 of {callee} at level {needed}, \
             but {callee} would serve level {served}"
        )]
    };
    // The callee first, as upgrades go up the ranks.
    assert_eq!(checked(&[program("pleg", 3, &[])]), [""; 0]);
    assert_eq!(checked(&[program("pleg", 2, &[])]), [""; 0]);
    assert_eq!(
        checked(&[program("pleg", 1, &[])]),
        too_low("prober", "pleg", 2, 1)
    );
    assert_eq!(
        checked(&[program("prober", 2, &[("pleg", 3)])]),
        too_low("prober", "pleg", 3, 2)
    );
    let both = [
        program("pleg", 3, &[]),
        program("prober", 2, &[("pleg", 3)]),
    ];
    assert_eq!(checked(&both), [""; 0]);
    let [callee, caller] = both;
    assert_eq!(
        checked(&[caller, callee]),
        too_low("prober", "pleg", 3, 2),
        "callers last"
    );
    // A package that is no longer served.
    let mut other = program("pleg", 9, &[]);
    other.serves[0].package = "polylet.pleg.v2".to_owned();
    assert_eq!(checked(&[other]), too_low("prober", "pleg", 2, 0));
}

#[test]
fn an_edge_that_does_not_fit_already_is_no_reason_to_refuse() {
    let mut unfit = running();
    unfit.insert("prober".to_owned(), program("prober", 2, &[("pleg", 3)]));
    let found = |service: &str, program: &ProgramDescriptor| {
        check([(service, program)], unfit.clone()).len()
    };
    assert_eq!(found("pleg", &program("pleg", 2, &[])), 0);
    assert_eq!(found("pleg", &program("pleg", 3, &[])), 0);
    assert_eq!(found("pleg", &program("pleg", 1, &[])), 1, "it gets worse");
    assert_eq!(found("prober", &program("prober", 2, &[("pleg", 4)])), 1);
}

#[test]
fn programs_of_other_services_and_invalid_versions_are_refused() {
    let other = program("prober", 2, &[]);
    let found = check([("pleg", &other)], running());
    assert_eq!(
        found[0].to_string(),
        "the program is that of prober, not of pleg"
    );
    let mut escaping = program("pleg", 2, &[]);
    escaping.version = "../1".to_owned();
    assert_eq!(
        checked(&[escaping]),
        [r#"the program of pleg has the invalid version "../1""#]
    );
}

#[test]
fn state_must_be_readable_and_a_way_back_is_known() {
    let old = with_file(program("pleg", 2, &[]), 1, 1);
    let reads_both = with_file(program("pleg", 2, &[]), 1, 2);
    let reads_new = with_file(program("pleg", 2, &[]), 2, 2);
    let undeclared = program("pleg", 2, &[]);
    let forward = |new: &ProgramDescriptor, present: &ProgramDescriptor| {
        let running = [("pleg".to_owned(), present.clone())].into();
        check([("pleg", new)], running).len()
    };
    // (new, present, can be upgraded, has a way back)
    for (new, present, readable, back) in [
        (&old, &old, true, true),
        (&reads_both, &old, true, false),
        (&reads_new, &old, false, false),
        (&reads_new, &reads_both, true, true),
        (&old, &reads_both, false, true),
        (&undeclared, &old, true, true),
        (&old, &undeclared, true, true),
    ] {
        assert_eq!(forward(new, present) == 0, readable, "{new:?} {present:?}");
        let way = no_way_back(new, present);
        assert_eq!(way.is_empty(), back, "{new:?} {present:?}");
    }
    assert_eq!(
        no_way_back(&reads_both, &old)[0].to_string(),
        "pleg would not read state:x.json, which is written at version 2: it reads 1 to 1"
    );
}
