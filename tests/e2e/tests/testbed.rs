//! The testbed itself: a containerd of its own comes up, restarts, and leaves nothing behind, even
//! when the run that made it was killed.

use polylet_e2e::ok;
use polylet_harness::guard::Guard;
use polylet_harness::scratch::Scratch;
use polylet_harness::{Containerd, Flavour, cgroup, cleanup, image};

#[tokio::test]
#[ignore = "needs root and a container runtime: cargo verify"]
async fn a_containerd_of_its_own_leaves_nothing_behind() {
    let mut scratch = ok(Scratch::create());
    let mut guard = Guard::new(scratch.dir());
    ok(cgroup::create(&scratch.facts().cgroup));
    let mut containerd = ok(Containerd::start(&mut scratch, Flavour::from_env(), &|_| {}).await);
    let images = ok(containerd.cri().images().await);
    for wanted in [image::TEST, image::PAUSE] {
        assert!(
            images
                .iter()
                .any(|found| found.repo_tags.iter().any(|tag| tag == wanted))
        );
    }
    ok(containerd.restart().await);
    containerd.down(true);
    ok(containerd.up().await);

    assert!(!cleanup::traces(scratch.dir(), scratch.facts()).is_empty());
    let left = guard.sweep();
    assert!(left.is_empty(), "{left:?}");
}
