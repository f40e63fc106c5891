//! NFS volumes on a real server: inline and from a claim, with mount options and read-only; and a
//! server that is gone at mount, while used and at unmount, which harms nobody else.

use std::path::Path;
use std::time::{Duration, Instant};

use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::wait::Poll;
use polylet_harness::{Cluster, guard};
use polylet_vm::guest::until;
use polylet_vm::node::{self, NODE};
use polylet_vm::{Guest, GuestNode, Hardware, ProgramSet, VirtualMachine, VmError, ok};
use serde_json::{Value, json};

/// Pods, volumes and claims.
mod objects;
/// The NFS server, and its loss.
mod server;

use objects::{READ_ONLY, SERVE, USE, inline, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Limit of everything that needs the server, once it is back: TCP's retries are far apart by then.
const RECOVERY_LIMIT: Duration = Duration::from_secs(300);

/// Limit of a removal without the server: an unmount that hangs is forced after a minute.
const REMOVAL_LIMIT: Duration = Duration::from_secs(240);

/// Time for a healthy step on an emulated processor.
const STEP_LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
#[ignore = "needs root, QEMU, the programs of a cluster: cargo verify -- --only vm"]
async fn nfs_volumes_work_and_a_lost_server_harms_no_other_pod() {
    guard::on_signals();
    let say = |line: &str| eprintln!("{line}");
    let cluster = ok(Cluster::start(&node::cluster_options(), &say).await);
    let programs = ProgramSet::new(Path::new(env!("CARGO_BIN_EXE_polylet-vm-agent")));
    let mut vm = ok(VirtualMachine::create(&programs, Hardware::default(), &say).await);
    ok(vm.boot().await);
    ok(GuestNode::default().install(ok(vm.guest()), &cluster).await);
    ok(node::services_ready(ok(vm.guest())).await);
    ok(cluster.wait_node_ready(NODE).await);
    let result = scenario(&cluster, ok(vm.guest())).await;
    if result.is_err() {
        vm.diagnose().await;
    }
    ok(result);
    ok(vm.remove());
    ok(cluster.remove());
}

async fn scenario(cluster: &Cluster, guest: &Guest) -> Result<(), VmError> {
    let mut test = NfsTest {
        cluster,
        guest,
        plain: 0,
        usual: Duration::ZERO,
    };
    server::start(guest).await?;
    test.create(&pod("neighbour", &Value::Null, SERVE)).await?;
    test.ready("neighbour", STEP_LIMIT).await?;
    let neighbour = test.identity("neighbour").await?;
    test.usual = test.plain_pod().await?;
    println!("\na plain pod starts in {:.1?}", test.usual);

    test.volumes_work().await?;
    test.mount_error_is_an_event().await?;
    test.server_gone_at_mount().await?;
    test.server_gone_while_used().await?;
    test.server_gone_at_unmount().await?;
    assert_eq!(
        test.identity("neighbour").await?,
        neighbour,
        "the neighbour was disturbed"
    );
    Ok(())
}

struct NfsTest<'a> {
    cluster: &'a Cluster,
    guest: &'a Guest,
    /// Number of plain pods so far.
    plain: usize,
    /// How long the first plain pod took.
    usual: Duration,
}

impl NfsTest<'_> {
    async fn volumes_work(&self) -> Result<(), VmError> {
        self.claim().await?;
        let claimed = json!({ "persistentVolumeClaim": { "claimName": "share" } });
        self.create(&pod("inline", &inline("/srv/share", false), USE))
            .await?;
        self.create(&pod("read-only", &inline("/srv/share", true), READ_ONLY))
            .await?;
        self.create(&pod("claimed", &claimed, USE)).await?;
        for name in ["inline", "read-only", "claimed"] {
            self.ready(name, STEP_LIMIT).await?;
        }
        for name in ["inline", "claimed"] {
            let file = format!("cat /srv/share/written-by-{name}");
            assert_eq!(self.guest.sh(&file).await?, format!("{name}\n"));
        }
        let options = self.mount_options("claimed").await?;
        for option in ["vers=4.1", "noatime", "timeo=50"] {
            assert!(options.contains(option), "no {option} in {options}");
        }
        let options = self.mount_options("read-only").await?;
        assert!(options.starts_with("ro,"), "{options}");
        self.delete("read-only").await?;
        self.gone("read-only", STEP_LIMIT).await?;
        println!("inline, read-only and claimed volumes work");
        Ok(())
    }

    /// A volume with mount options, and its claim.
    async fn claim(&self) -> Result<(), VmError> {
        let client = self.cluster.client();
        client
            .create("/api/v1/persistentvolumes", &objects::volume())
            .await?;
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        client.create(claims, &objects::claim()).await?;
        Ok(())
    }

    /// The text of a mount's failure is the one that people know.
    async fn mount_error_is_an_event(&self) -> Result<(), VmError> {
        self.create(&pod("refused", &inline("/srv/not-exported", false), SERVE))
            .await?;
        let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=refused";
        let expected = "MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32\n\
                        Mounting command: mount\nMounting arguments: -t nfs 10.0.2.15:/srv/not-exported ";
        until("an event of the failed mount", STEP_LIMIT, || async {
            let events = self.cluster.client().get(path).await?.unwrap_or_default();
            let events = events["items"].as_array().cloned().unwrap_or_default();
            let is_told = events.iter().any(|event| {
                let message = event["message"].as_str().unwrap_or_default();
                event["reason"] == "FailedMount" && message.starts_with(expected)
            });
            let seen: Vec<_> = events.iter().map(|event| &event["message"]).collect();
            Ok(match is_told {
                true => Poll::Ready(()),
                false => Poll::Pending(format!("{seen:?}")),
            })
        })
        .await?;
        self.delete("refused").await?;
        self.gone("refused", STEP_LIMIT).await
    }

    async fn server_gone_at_mount(&mut self) -> Result<(), VmError> {
        server::lose(self.guest).await?;
        self.create(&pod("waiting", &inline("/srv/share", false), USE))
            .await?;
        self.hanging("mount.nfs").await?;
        self.others_are_unharmed("gone at mount").await?;
        let waiting = self.pod("waiting").await?;
        assert_eq!(waiting["status"]["phase"], "Pending");
        server::find_again(self.guest).await?;
        self.recovered("waiting").await
    }

    async fn server_gone_while_used(&mut self) -> Result<(), VmError> {
        let names = ["inline", "claimed", "waiting"];
        let mut before = Vec::new();
        for name in names {
            before.push(self.identity(name).await?);
        }
        server::lose(self.guest).await?;
        self.hanging("sh -c trap").await?;
        self.others_are_unharmed("gone while used").await?;
        server::find_again(self.guest).await?;
        for (name, before) in names.iter().zip(before) {
            self.recovered(name).await?;
            assert_eq!(self.identity(name).await?, before, "{name} was restarted");
        }
        Ok(())
    }

    async fn server_gone_at_unmount(&mut self) -> Result<(), VmError> {
        // In use when the server is lost: a request waits for it when its process is killed.
        server::lose(self.guest).await?;
        self.hanging("sh -c trap").await?;
        let before = self.nfs_mounts().await?;
        let begun = Instant::now();
        self.delete("inline").await?;
        self.delete("claimed").await?;
        self.others_are_unharmed("gone at unmount").await?;
        for name in ["inline", "claimed"] {
            self.gone(name, REMOVAL_LIMIT).await?;
        }
        println!(
            "pods of the lost server were removed after {:.1?}",
            begun.elapsed()
        );
        let after = self.nfs_mounts().await?;
        assert_eq!((before, after), (3, 1), "NFS mounts before and after");
        server::find_again(self.guest).await?;
        self.recovered("waiting").await?;
        self.delete("waiting").await?;
        self.gone("waiting", STEP_LIMIT).await?;
        until("no NFS mount to be left", STEP_LIMIT, || async {
            Ok(match self.nfs_mounts().await? {
                0 => Poll::Ready(()),
                left => Poll::Pending(left.to_string()),
            })
        })
        .await
    }

    /// Number of NFS mounts.
    async fn nfs_mounts(&self) -> Result<usize, VmError> {
        let mounts = self.guest.sh("cat /proc/mounts").await?;
        Ok(mounts
            .lines()
            .filter(|line| line.contains(" nfs4 "))
            .count())
    }

    /// Waits until a process with this command line waits for the server.
    async fn hanging(&self, command: &str) -> Result<(), VmError> {
        let script = "ps -eo stat,args | grep '^D' || true; pgrep -af mount || true";
        until(format!("{command} to hang"), STEP_LIMIT, || async {
            let processes = self.guest.sh(script).await?;
            Ok(match processes.contains(command) {
                true => Poll::Ready(()),
                false => Poll::Pending(processes),
            })
        })
        .await
    }

    /// Pods that do not use the server start and end as usual, and the node's services respond.
    async fn others_are_unharmed(&mut self, when: &str) -> Result<(), VmError> {
        let took = self.plain_pod().await?;
        println!("server {when}: a plain pod starts in {took:.1?}");
        assert!(
            took < self.usual * 3 + Duration::from_secs(2),
            "server {when}: a plain pod took {took:.1?}, usually {:.1?}",
            self.usual
        );
        let name = format!("plain-{}", self.plain);
        self.delete(&name).await?;
        self.gone(&name, STEP_LIMIT).await?;
        node::services_ready(self.guest).await?;
        assert!(
            is_ready(&self.pod("neighbour").await?),
            "the neighbour is not ready"
        );
        Ok(())
    }

    /// Starts another plain pod; returns how long it took.
    async fn plain_pod(&mut self) -> Result<Duration, VmError> {
        self.plain += 1;
        let name = format!("plain-{}", self.plain);
        let begun = Instant::now();
        self.create(&pod(&name, &Value::Null, SERVE)).await?;
        self.ready(&name, STEP_LIMIT).await?;
        Ok(begun.elapsed())
    }

    async fn recovered(&self, name: &str) -> Result<(), VmError> {
        self.ready(name, RECOVERY_LIMIT).await?;
        let used = format!("rm -f /srv/share/used-by-{name}");
        self.guest.sh(&used).await?;
        let there = format!("test -e /srv/share/used-by-{name} && echo yes || echo no");
        until(
            format!("{name} to use its volume"),
            RECOVERY_LIMIT,
            || async {
                Ok(match self.guest.sh(&there).await?.trim() {
                    "yes" => Poll::Ready(()),
                    other => Poll::Pending(other.to_owned()),
                })
            },
        )
        .await
    }

    async fn create(&self, pod: &Value) -> Result<(), VmError> {
        self.cluster.client().create(PODS, pod).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), VmError> {
        self.cluster
            .client()
            .delete(&pod_path(name), &Value::Null)
            .await?;
        Ok(())
    }

    async fn pod(&self, name: &str) -> Result<Value, VmError> {
        let pod = self.cluster.client().get(&pod_path(name)).await?;
        Ok(pod.unwrap_or_default())
    }

    async fn ready(&self, name: &str, limit: Duration) -> Result<(), VmError> {
        until(format!("pod {name} to be Ready"), limit, || async {
            let pod = self.pod(name).await?;
            Ok(match is_ready(&pod) {
                true => Poll::Ready(()),
                false => Poll::Pending(pod["status"].to_string()),
            })
        })
        .await
    }

    async fn gone(&self, name: &str, limit: Duration) -> Result<(), VmError> {
        until(format!("pod {name} to be gone"), limit, || async {
            let pod = self.pod(name).await?;
            Ok(match pod.is_null() {
                true => Poll::Ready(()),
                false => Poll::Pending(pod["status"].to_string()),
            })
        })
        .await
    }

    /// Container id and restart count.
    async fn identity(&self, name: &str) -> Result<(Value, Value), VmError> {
        let pod = self.pod(name).await?;
        let status = &pod["status"]["containerStatuses"][0];
        Ok((
            status["containerID"].clone(),
            status["restartCount"].clone(),
        ))
    }

    /// Mount options of the pod's only NFS volume.
    async fn mount_options(&self, name: &str) -> Result<String, VmError> {
        let pod = self.pod(name).await?;
        let uid = pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let script = format!("grep '/pods/{uid}/volumes/kubernetes.io~nfs/' /proc/mounts");
        let line = self.guest.sh(&script).await?;
        Ok(line.split(' ').nth(3).unwrap_or_default().to_owned())
    }
}
