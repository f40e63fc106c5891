//! Each program of this build with all others of the version before, and the reverse: the program is
//! replaced on a running node, pods go through their whole life, and the program is put back. A pod that
//! runs all the time is not disturbed. Where the wire has changed so that two programs do not fit, one
//! refuses the other and says so. Services that the version before does not have are those of this build.
//!
//! Needs the programs of the version before: `cargo verify -- --only compatibility`, which sets
//! `POLYLET_TEST_PREVIOUS_BIN_DIR`. `POLYLET_TEST_COMPATIBILITY_FILTER=pleg` runs the combinations of one
//! program.

#[path = "compatibility/combination.rs"]
mod combination;
#[path = "compatibility/life.rs"]
mod life;
#[path = "compatibility/programs.rs"]
mod programs;

use std::path::PathBuf;

use combination::{BaseNode, Verdict};
use polylet_e2e::steps::Steps;
use polylet_harness::node::default_bin_dir;
use programs::ProgramSet;

#[tokio::test]
#[ignore = "needs root, a container runtime and programs of two versions: cargo verify -- --only compatibility"]
async fn each_program_works_with_those_of_the_version_before() {
    let previous = std::env::var_os("POLYLET_TEST_PREVIOUS_BIN_DIR");
    let previous = previous.expect("POLYLET_TEST_PREVIOUS_BIN_DIR: cargo verify sets it");
    let name = std::env::var("POLYLET_TEST_PREVIOUS").unwrap_or_else(|_| "previous".to_owned());
    let new = ProgramSet::read("this build", &default_bin_dir());
    let mut old = ProgramSet::read(&name, &PathBuf::from(previous));
    old.complete_with(&new);
    let filter = std::env::var("POLYLET_TEST_COMPATIBILITY_FILTER").ok();
    let is_wanted = |service: &&&str| {
        let is_named = filter.as_deref().is_none_or(|filter| filter == **service);
        is_named && old.file(service) != new.file(service)
    };

    let mut steps = Steps::new();
    let mut rows = Vec::new();
    for (others, replaced) in [(&old, &new), (&new, &old)] {
        let title = format!("all programs of {}", others.name);
        let started = BaseNode::start(others);
        let Some(mut node) = steps.require(&title, started).await else {
            println!("{title} do not fit each other");
            continue;
        };
        for service in programs::ALL.iter().filter(is_wanted) {
            let title = format!("{service} of {}, others of {}", replaced.name, others.name);
            let mut verdict = None;
            let combined = async { verdict = Some(node.try_with(service, replaced).await) };
            steps.run(&title, combined).await;
            if verdict.is_none() {
                // Whatever state it left.
                node.keep_logs();
                node = BaseNode::start(others).await.expect("a node");
            }
            let verdict = verdict.unwrap_or(Verdict::Failed);
            rows.push((*service, &replaced.name, &others.name, verdict));
        }
        node.remove();
    }
    println!(
        "\n{:<18} {:<14} {:<14} result",
        "program", "of", "others of"
    );
    for (service, replaced, others, verdict) in &rows {
        println!("{service:<18} {replaced:<14} {others:<14} {verdict}");
    }
    let count = |wanted: fn(&Verdict) -> bool| rows.iter().filter(|row| wanted(&row.3)).count();
    println!(
        "{} combinations work, {} are refused, {} failed",
        count(|verdict| matches!(verdict, Verdict::Works)),
        count(|verdict| matches!(verdict, Verdict::Refused(_))),
        count(|verdict| matches!(verdict, Verdict::Failed)),
    );
    steps.finish();
}
