//! The stats summary: one sample of everything.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use polylet_wire::volume::v1::{VolumeLevel, VolumeStats};

use super::{Places, pod};
use crate::core::facts::{Held, Wanted};
use crate::core::signal::Level;
use crate::core::summary::{Cpu, Files, Memory, Part, PodPart, Sample, VolumePart};
use crate::sample::cgroup::{CgroupUse, Mounts};
use crate::sample::{disk, node, tree};

/// Processor time counters of the last summary, so that the next can tell rates.
#[derive(Default)]
pub(super) struct Counters(Mutex<HashMap<String, (Timestamp, u64)>>);

impl Counters {
    fn rate(&self, counter: &str, at: Timestamp, nanoseconds: u64) -> Cpu {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.insert(counter.to_owned(), (at, nanoseconds));
        let nanocores = before.and_then(|(then, count)| {
            let elapsed = u64::try_from(at.duration_since(then).as_millis()).ok()?;
            let used = nanoseconds.saturating_sub(count);
            (elapsed > 0).then(|| used.saturating_mul(1000) / elapsed)
        });
        Cpu {
            nanoseconds,
            nanocores,
        }
    }

    /// What this summary did not count is gone.
    fn forget_before(&self, at: Timestamp) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, (then, _)| *then >= at);
    }
}

/// A summary to be made, away from the service's own thread.
pub(super) struct SummaryWork {
    pub(super) at: Timestamp,
    pub(super) node_name: String,
    pub(super) mounts: Mounts,
    pub(super) places: Places,
    pub(super) image_fs: Option<PathBuf>,
    pub(super) layers: BTreeMap<String, tree::Use>,
    pub(super) counters: Arc<Counters>,
    pub(super) pods: Vec<(String, Option<Wanted>, Held)>,
    pub(super) files: bool,
    /// Volumes that volume-manager knows of, by their places on the node.
    pub(super) known: HashMap<PathBuf, VolumeStats>,
}

impl SummaryWork {
    /// Reads everything.
    pub(super) fn sample(self) -> Sample {
        let memory = node::memory();
        let pods_cgroup = self.mounts.first_existing(&self.places.pods_cgroup);
        let pods_use = pods_cgroup
            .map(|cgroup| self.mounts.read(cgroup))
            .unwrap_or_default();
        let sample = Sample {
            at: self.at,
            node: Part {
                name: self.node_name.clone(),
                cpu: node::cpu_nanoseconds().map(|ns| self.counters.rate("/", self.at, ns)),
                memory: memory.map(|memory| Memory {
                    available: Some(memory.level().available),
                    usage: memory.usage,
                    working_set: memory.working_set,
                    rss: memory.rss,
                    ..Memory::default()
                }),
                ..Part::default()
            },
            system: vec![self.part("pods", "/pods", pods_use)],
            fs: self.disk(&self.places.root),
            image_fs: self.image_fs.as_deref().and_then(|path| self.disk(path)),
            pids: node::pids(),
            swap: memory.map(|memory| Level {
                available: memory.swap_free,
                capacity: memory.swap_total,
            }),
            pods: self
                .pods
                .iter()
                .map(|(uid, wanted, held)| self.pod(uid, wanted.as_ref(), held))
                .collect(),
        };
        self.counters.forget_before(self.at);
        sample
    }

    fn pod(&self, uid: &str, wanted: Option<&Wanted>, held: &Held) -> PodPart {
        let cgroup = pod::pod_cgroup(&self.mounts, wanted);
        let used = cgroup
            .as_deref()
            .map(|cgroup| self.mounts.read(cgroup))
            .unwrap_or_default();
        let mut whole = self.part(&held.name, uid, used);
        whole.started_at = held.created_at;
        let logs = pod::logs_of(&self.places, uid, held);
        let containers = held
            .running
            .iter()
            .map(|running| {
                let used = pod::container_use(&self.mounts, cgroup.as_deref(), &running.id);
                let mut part = self.part(&running.name, &running.id, used);
                part.started_at = running.started_at;
                part.rootfs = self.layers.get(&running.id).map(|layer| plain(*layer));
                if self.files {
                    part.logs = Some(plain(tree::measure(&logs.join(&running.name))));
                }
                part
            })
            .collect::<Vec<_>>();
        let volumes = if self.files {
            self.volumes(uid)
        } else {
            Vec::new()
        };
        let ephemeral = self.files.then(|| {
            let layers = containers.iter().filter_map(|part| part.rootfs);
            let own = volumes.iter().filter(|volume| volume.local);
            let all = layers.chain(own.map(|volume| volume.files));
            let logs = plain(tree::measure(&logs));
            all.fold(logs, |sum, one| Files {
                used_bytes: sum.used_bytes + one.used_bytes,
                used_inodes: sum.used_inodes + one.used_inodes,
                ..sum
            })
        });
        PodPart {
            uid: uid.to_owned(),
            namespace: held.namespace.clone(),
            whole,
            containers,
            volumes,
            ephemeral,
        }
    }

    /// Every volume directory of a pod, by the volume's name.
    fn volumes(&self, uid: &str) -> Vec<VolumePart> {
        let root = self.places.root.join("pods").join(uid).join("volumes");
        let children = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let mut found: Vec<VolumePart> = children(&root)
            .iter()
            .flat_map(|plugin| children(plugin))
            .filter_map(|volume| self.volume(&volume))
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// One of them. What lies on a volume of the cluster is not counted file by file: its driver
    /// says, or its file system. Nothing is said of a driver's volume where the driver does not.
    fn volume(&self, at: &Path) -> Option<VolumePart> {
        let name = at.file_name()?.to_string_lossy().into_owned();
        let drivers = at.parent()?.ends_with("kubernetes.io~csi");
        let place = if drivers {
            at.join("mount")
        } else {
            at.to_owned()
        };
        let known = self.known.get(&place);
        let claim = known.map(|known| known.claim.clone());
        let claim = claim.filter(|claim| !claim.is_empty());
        let name = known.map_or(name, |known| known.name.clone());
        let files = if drivers {
            told(known?)?
        } else if claim.is_some() {
            self.disk(at)?
        } else {
            let (used, disk) = (tree::measure(at), disk::of(at));
            Files {
                bytes: disk.map(|disk| disk.bytes),
                inodes: disk.map(|disk| disk.inodes),
                used_bytes: used.bytes,
                used_inodes: used.inodes,
            }
        };
        Some(VolumePart {
            local: !drivers && claim.is_none(),
            name,
            claim,
            files,
        })
    }

    fn part(&self, name: &str, counter: &str, used: CgroupUse) -> Part {
        Part {
            name: name.to_owned(),
            cpu: used
                .cpu_nanoseconds
                .map(|ns| self.counters.rate(counter, self.at, ns)),
            memory: used.memory.map(|memory| Memory {
                available: memory
                    .limit
                    .map(|limit| limit.saturating_sub(memory.working_set)),
                usage: memory.usage,
                working_set: memory.working_set,
                rss: memory.rss,
                page_faults: memory.page_faults,
                major_page_faults: memory.major_page_faults,
            }),
            processes: used.processes,
            ..Part::default()
        }
    }

    fn disk(&self, path: &Path) -> Option<Files> {
        if !self.files {
            return None;
        }
        let disk = disk::of(path)?;
        Some(Files {
            bytes: Some(disk.bytes),
            inodes: Some(disk.inodes),
            used_bytes: disk.bytes.capacity.saturating_sub(disk.bytes.available),
            used_inodes: disk.inodes.capacity.saturating_sub(disk.inodes.available),
        })
    }
}

fn plain(used: tree::Use) -> Files {
    Files {
        used_bytes: used.bytes,
        used_inodes: used.inodes,
        ..Files::default()
    }
}

/// What a driver says of its volume, if it says how large it is.
fn told(known: &VolumeStats) -> Option<Files> {
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let level = |of: &VolumeLevel| Level {
        available: number(of.available),
        capacity: number(of.capacity),
    };
    let (bytes, inodes) = (known.bytes.as_ref()?, known.inodes.as_ref());
    Some(Files {
        bytes: Some(level(bytes)),
        inodes: inodes.map(level),
        used_bytes: number(bytes.used),
        used_inodes: inodes.map_or(0, |inodes| number(inodes.used)),
    })
}
