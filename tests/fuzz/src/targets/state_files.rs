//! State files of all services: whatever a crash, a full disk or another build left in them.

use std::cell::LazyCell;
use std::fs;

use crate::input::select;
use crate::scratch::FuzzScratch;

thread_local! {
    static SCRATCH: LazyCell<FuzzScratch> = LazyCell::new(FuzzScratch::new);
}

/// The files, by the first byte of the input. Their services load all of them.
const FILES: [&str; 26] = [
    "state/checkpoints/u1.json",
    "run/sandbox_attempts/u1.json",
    "run/lifecycles/u1.json",
    "root/allocated_pods_state",
    "root/actuated_pods_state",
    "root/image_manager/pulled/sha256-1",
    "root/image_manager/pulling/sha256-1",
    "evictions.json",
    "oom.json",
    "pressure.json",
    "pods/u1/plugins/polylet.dev~volume/pod.json",
    "vol_data.json",
    "file.json",
    "objects.json",
    "api.json",
    "cluster.json",
    "node.json",
    "services.json",
    "tokens.json",
    "notices.json",
    "statuses.json",
    "probe-results.json",
    "ages.json",
    "plugins.json",
    "kubelet_internal_checkpoint",
    "listed-plugins.json",
];

/// Loads one file with the content of the input.
pub(super) fn state_file(data: &[u8]) {
    let (index, content) = select(data, FILES.len() as u8);
    let Some(name) = FILES.get(usize::from(index)) else {
        return;
    };
    SCRATCH.with(|scratch| {
        scratch.write(name, content);
        let dir = scratch.path();
        match index {
            0..=6 => drop(polylet_sync_coordinator::fuzzing::state_files(dir)),
            7..=9 => drop(polylet_eviction::fuzzing::state_files(dir)),
            10 => {
                let layout = polylet_volume_manager::core::layout::Layout::new(dir);
                polylet_volume_manager::volume::metadata::load(&layout, &"u1".into());
            }
            11 => drop(polylet_volume_manager::csi::data::in_use(&dir.join(name))),
            12..=18 => polylet_pod_config::cluster::fuzzing::state_files(dir),
            19 | 20 => drop(polylet_status_reporter::fuzzing::state_files(dir)),
            21 => drop(polylet_prober::fuzzing::state_files(dir)),
            22 => drop(polylet_image_gc::fuzzing::state_files(dir)),
            _ => drop(polylet_device_manager::fuzzing::state_files(dir)),
        }
        // Corrupt files are set aside: nothing of this input may be left for the next one.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    });
}
