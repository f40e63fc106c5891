//! The testbed itself: a private containerd starts, restarts, and is removed completely, even when the
//! test run was killed.

use polylet_e2e::ok;
use polylet_harness::cri::channel;
use polylet_harness::guard::CleanupGuard;
use polylet_harness::scratch::{self, Scratch};
use polylet_harness::{Containerd, Flavour, HarnessError, cgroup, cleanup, containerd, image};
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest,
};

#[tokio::test]
#[ignore = "needs root and a container runtime: cargo verify"]
async fn private_containerd_is_removed_completely() {
    let mut scratch = ok(Scratch::create());
    let mut guard = CleanupGuard::new(scratch.dir());
    ok(cgroup::create(&scratch.facts().cgroup));
    let mut containerd =
        ok(Containerd::start(&mut scratch, Flavour::from_env(), false, &|_| {}).await);
    let images = ok(containerd.cri().images().await);
    for expected in [image::TEST, image::PAUSE] {
        assert!(
            images
                .iter()
                .any(|found| found.repo_tags.iter().any(|tag| tag == expected))
        );
    }
    ok(containerd.restart().await);
    containerd.down(true);
    ok(containerd.up().await);

    assert!(!cleanup::traces(scratch.dir(), scratch.facts()).is_empty());
    let left = guard.sweep();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
#[ignore = "needs root and a container runtime: cargo verify"]
async fn killed_run_is_removed_by_the_next_one() {
    let mut scratch = ok(Scratch::create());
    let guard = CleanupGuard::new(scratch.dir());
    ok(cgroup::create(&scratch.facts().cgroup));
    let mut containerd =
        ok(Containerd::start(&mut scratch, Flavour::from_env(), false, &|_| {}).await);
    ok(run_sandbox(&scratch).await);
    containerd.down(true);

    // As after SIGKILL: no clean-up, and the kernel releases the lock.
    std::mem::forget(guard);
    let (dir, facts) = (scratch.dir().to_owned(), scratch.facts().clone());
    let left = cleanup::traces(&dir, &facts);
    for what in ["containerd-shim", "mount", "cgroup", "bridge", "directory"] {
        assert!(
            left.iter().any(|line| line.contains(what)),
            "no {what} in {left:?}"
        );
    }
    drop(scratch);
    scratch::remove_leftovers();
    assert_eq!(cleanup::traces(&dir, &facts), Vec::<String>::new());
}

async fn run_sandbox(scratch: &Scratch) -> Result<String, HarnessError> {
    let mut client = RuntimeServiceClient::new(channel(&containerd::socket(scratch.dir()))?);
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "left".to_owned(),
            uid: "left".to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: scratch.facts().cgroup.clone(),
            ..LinuxPodSandboxConfig::default()
        }),
        ..PodSandboxConfig::default()
    };
    let request = RunPodSandboxRequest {
        config: Some(config),
        ..RunPodSandboxRequest::default()
    };
    let answer = client.run_pod_sandbox(request).await;
    let failed = |source| HarnessError::Call {
        call: "RunPodSandbox",
        source: Box::new(source),
    };
    Ok(answer.map_err(failed)?.into_inner().pod_sandbox_id)
}
