//! A node with the programs of one version, of which one after the other is replaced.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use polylet_e2e::{example, node_with, ok};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView, procs};
use polylet_wire::runtime::v1::ContainerState;
use serde_json::json;

use crate::life;
use crate::programs::{Descriptors, Misfit, ProgramSet, SUPERVISOR, misfits, program_name};

/// The result of a combination.
pub(crate) enum Verdict {
    /// Pods live as with one version.
    Works,
    /// Some calls do not fit; they are refused, visibly.
    Refused(Vec<Misfit>),
    /// A step failed.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Works => write!(f, "works"),
            Verdict::Refused(misfits) => {
                let misfits: Vec<String> = misfits.iter().map(Misfit::to_string).collect();
                write!(f, "refused: {}", misfits.join("; "))
            }
            Verdict::Failed => write!(f, "FAILED"),
        }
    }
}

/// A node with programs of one version, and a pod that runs all the time.
pub(crate) struct BaseNode<'a> {
    node: Node,
    /// The programs.
    base: &'a ProgramSet,
    directory: tempfile::TempDir,
    witness: PodView,
}

impl<'a> BaseNode<'a> {
    /// Starts it; `None` if the programs of this version do not fit themselves.
    pub(crate) async fn start(base: &'a ProgramSet) -> Option<Self> {
        if !misfits(&base.descriptors).is_empty() {
            return None;
        }
        let directory = base.directory_of_links();
        let options = NodeOptions {
            bin_dir: Some(directory.path().to_owned()),
            polylet: json!({ "evictStaticPods": true }),
            ..NodeOptions::default()
        };
        let mut node = node_with(options).await;
        let witness = example(&node).await;
        let (name, text) = life::CONFIG_MAP;
        ok(node.put(name, text));
        ok(node.wait_in_step().await);
        Some(Self {
            node,
            base,
            directory,
            witness,
        })
    }

    /// Replaces the program of one service, tries what works with it, and puts the former back.
    pub(crate) async fn try_with(&mut self, service: &'static str, other: &ProgramSet) -> Verdict {
        let mut combined: Descriptors = self.base.descriptors.clone();
        combined.insert(service, other.descriptors[service].clone());
        let misfits = misfits(&combined);
        if !misfits.is_empty() && service != SUPERVISOR {
            self.upgrade_is_refused(service, other, &misfits).await;
        }
        self.replace(service, other).await;
        let verdict = match misfits.is_empty() {
            true => {
                ok(self.node.wait_in_step().await);
                life::pods_live_and_are_evicted(&self.node).await;
                Verdict::Works
            }
            false => {
                for misfit in &misfits {
                    self.is_refused(misfit).await;
                }
                Verdict::Refused(misfits)
            }
        };
        self.assert_undisturbed().await;
        let base = self.base;
        self.replace(service, base).await;
        ok(self.node.wait_in_step().await);
        self.assert_undisturbed().await;
        verdict
    }

    /// Saves the logs of a step that failed.
    pub(crate) fn keep_logs(&self) {
        self.node.keep_logs();
    }

    /// Stops the node.
    pub(crate) fn remove(self) {
        ok(self.node.remove());
    }

    /// Links another program under the service's name and restarts it.
    async fn replace(&mut self, service: &str, with: &ProgramSet) {
        with.install(service, self.directory.path());
        if service == SUPERVISOR {
            self.node.down();
            ok(self.node.up().await);
        } else {
            ok(self.node.kill(service).await);
        }
        let name = program_name(service);
        let file = inode(&self.directory.path().join(&name));
        ok(until(format!("{name} of {} to run", with.name), || async {
            let found = procs::list(self.node.scratch());
            let runs = found.iter().any(|process| {
                let exe = format!("/proc/{}/exe", process.pid);
                process.name() == name && inode(Path::new(&exe)) == file
            });
            match runs {
                true => Poll::Ready(()),
                false => Poll::Pending("does not run".to_owned()),
            }
        })
        .await);
    }

    /// `polylet upgrade` says beforehand that the program does not fit.
    async fn upgrade_is_refused(&self, service: &str, with: &ProgramSet, misfits: &[Misfit]) {
        let program = with.file(service).display().to_string();
        let args = ["upgrade", service, "--to", &program, "--dry-run"];
        let output = ok(self.node.cli(&args).await);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        // The calls of the command line are its own.
        for misfit in misfits.iter().filter(|misfit| misfit.caller != SUPERVISOR) {
            let (caller, package) = (&misfit.caller, &misfit.package);
            let expected = format!("{caller} needs {package} of {}", misfit.callee);
            assert!(text.contains(&expected), "no {expected:?} in {text}");
        }
    }

    /// `polylet status` says that a call is refused; the calls of the command line itself fail.
    async fn is_refused(&self, misfit: &Misfit) {
        if misfit.caller == SUPERVISOR {
            let command = match misfit.callee.as_str() {
                "status-reporter" => "pods",
                _ => "status",
            };
            let output = ok(self.node.cli(&[command]).await);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let expected = format!("refused: {} is too old", misfit.callee);
            assert!(text.contains(&expected), "no {expected:?} in {text}");
            return;
        }
        let (callee, package) = (&misfit.callee, &misfit.package);
        let (served, needed) = (misfit.served, misfit.needed);
        let expected = format!("it serves {package} at level {served}, needed is {needed}");
        let title = format!("{} to refuse {callee}: {expected}", misfit.caller);
        ok(until(title, || async {
            let output = ok(self.node.cli(&["status"]).await);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_said = |line: &str| {
                line.starts_with("PeerIncompatible")
                    && line.contains(misfit.caller.as_str())
                    && line.contains(callee.as_str())
                    && line.contains(&expected)
            };
            match text.lines().any(is_said) {
                true => Poll::Ready(()),
                false => Poll::Pending(text),
            }
        })
        .await);
    }

    /// The pod that runs all the time still runs, in the same containers.
    async fn assert_undisturbed(&self) {
        let cri = self.node.containerd.cri();
        let all = ok(cri.containers().await);
        let running = self.witness.containers().into_iter();
        for container in running.filter(|container| container.state == "running") {
            let id = container.id.trim_start_matches("containerd://");
            let runs = all
                .iter()
                .any(|one| one.id == id && one.state() == ContainerState::ContainerRunning);
            assert!(
                runs,
                "{container:?} of the pod that was not to be disturbed ended"
            );
        }
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.ino())
}
