//! Thousands of simulations with faults, and simulations with a deliberate bug.

use std::collections::BTreeMap;

use polylet_sim::invariants::Invariant;
use polylet_sim::mutations::Mutation;
use polylet_sim::run;

/// Two minutes of processor time on two cores.
const SEEDS: u64 = 2000;
/// The seeds within which a bug has to be found; most are found within ten.
const MAX_SEEDS: u64 = 2000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn within_tokio<T>(work: impl FnOnce() -> T) -> T {
    // Streams need a timer; none of theirs fires here.
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let tokio = tokio.expect("a runtime without threads");
    let _context = tokio.enter();
    work()
}

/// Runs seeds and returns the first violation of each invariant.
fn violations(seeds: impl Iterator<Item = u64>) -> BTreeMap<Invariant, String> {
    let mut violations = BTreeMap::new();
    for seed in seeds {
        if let Some(found) = run::seed(seed, None, false).violation {
            violations.entry(found.invariant).or_insert_with(|| {
                let why = found.why;
                format!("seed {seed}: {why} (POLYLET_SIM_SEED={seed} prints the log)")
            });
        }
    }
    violations
}

fn run_half(remainder: u64) {
    if let Some(seed) = number("POLYLET_SIM_SEED") {
        if seed % 2 == remainder {
            let report = within_tokio(|| run::seed(seed, None, true));
            println!("{}", report.log.join("\n"));
            assert!(
                report.violation.is_none(),
                "seed {seed}: {:?}",
                report.violation
            );
        }
        return;
    }
    let seeds = number("POLYLET_SIM_SEEDS").unwrap_or(SEEDS);
    let found = within_tokio(|| violations((0..seeds).filter(|seed| seed % 2 == remainder)));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn invariants_hold_for_even_seeds() {
    run_half(0);
}

#[test]
fn invariants_hold_for_odd_seeds() {
    run_half(1);
}

#[test]
fn the_same_seed_gives_the_same_log() {
    within_tokio(|| {
        for seed in 0..10 {
            let (one, two) = (run::seed(seed, None, true), run::seed(seed, None, true));
            assert!(one.log.len() > 20, "seed {seed} has no log");
            assert_eq!(one.log, two.log, "seed {seed}");
        }
    });
}

/// Runs seeds with a bug until an invariant is violated.
fn assert_found(mutation: Mutation, invariants: &[Invariant]) {
    let first = within_tokio(|| {
        let seeds = 0..MAX_SEEDS;
        let mut found = seeds.filter_map(|seed| run::seed(seed, Some(mutation), false).violation);
        found.next()
    });
    let first = first.unwrap_or_else(|| panic!("{mutation:?} was not found"));
    assert!(
        invariants.contains(&first.invariant),
        "{mutation:?}: {first:?}"
    );
}

#[test]
fn lost_checkpoints_are_found() {
    assert_found(
        Mutation::CheckpointsLost,
        &[
            Invariant::TerminatedPodsStayTerminated,
            Invariant::RestartsChangeNothing,
            Invariant::NoLeaks,
        ],
    );
}

#[test]
fn lost_sandbox_intents_are_found() {
    assert_found(
        Mutation::SandboxIntentsLost,
        &[Invariant::UniqueSandboxAttempts],
    );
}

#[test]
fn premature_syncs_are_found() {
    assert_found(
        Mutation::PrematureSync,
        &[
            Invariant::UnchangedPodsKeepRunning,
            Invariant::NoRemovalBeforeSync,
            Invariant::ResourcesInUseAreRetained,
        ],
    );
}

#[test]
fn volumes_released_early_are_found() {
    // Whichever comes first: the unmount under a running container, the restart of a container after
    // it, or one that waits for volumes which nobody declares again.
    assert_found(
        Mutation::VolumesReleasedEarly,
        &[
            Invariant::ResourcesInUseAreRetained,
            Invariant::VolumesBeforeContainers,
            Invariant::Convergence,
        ],
    );
}

#[test]
fn ignored_image_use_is_found() {
    assert_found(
        Mutation::ImageUseIgnored,
        &[Invariant::UsedImagesAreRetained],
    );
}

#[test]
fn forgotten_active_pods_are_found() {
    // Whichever comes first: a device of two pods, or a running pod whose devices are free at the end.
    assert_found(
        Mutation::ActivePodsForgotten,
        &[Invariant::DevicesAreExclusive, Invariant::Convergence],
    );
}

/// Containers published as ready stay ready until a probe has a result, as after a change of the agent.
#[test]
fn lost_probe_results_are_harmless() {
    within_tokio(|| {
        for seed in 0..MAX_SEEDS / 4 {
            let violation = run::seed(seed, Some(Mutation::ProbeResultsLost), false).violation;
            assert!(violation.is_none(), "seed {seed}: {violation:?}");
        }
    });
}
