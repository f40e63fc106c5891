//! Persistent volumes that several pods of this node may want.

use super::State;
use crate::core::declare::Wish;
use crate::core::layout::{self, VolumeId};
use crate::core::plan::{ActualVolume, Holds, Slot};
use crate::core::spec::{SetUp, Wants};

/// Whether a volume of a pod lies under a persistent volume's name.
fn is_persistent((plugin, _): &Slot, volume: &ActualVolume) -> bool {
    let of_pod = |holds: &Holds| match holds {
        Holds::Exactly(what) => matches!(&**what, SetUp::Csi(csi) if csi.ephemeral),
        _ => false,
    };
    names_persistent(plugin) && !of_pod(&volume.holds)
}

fn names_persistent(plugin: &str) -> bool {
    let all = [
        layout::CSI,
        layout::CSI_DEVICE,
        layout::LOCAL,
        layout::LOCAL_DEVICE,
    ];
    all.contains(&plugin)
}

impl State {
    /// Whether another pod has a persistent volume, or something of it is under way there.
    pub(super) fn has_another(&self, uid: &str, persistent: &str) -> bool {
        let others = self.actual.iter().filter(|(other, _)| *other != uid);
        let mut volumes = others.flat_map(|(_, pod)| &pod.volumes);
        volumes.any(|(slot, volume)| slot.1 == persistent && is_persistent(slot, volume))
    }

    /// A volume is there no more: another pod may wait for that.
    pub(super) fn left(&mut self, id: &VolumeId) {
        if !names_persistent(&id.plugin) {
            return;
        }
        let by_claim = |uid: &&String| match self.declarations.get(uid).map(|d| &d.wish) {
            Some(Wish::Keep(spec)) => {
                let mut volumes = spec.volumes.iter();
                volumes.any(|volume| matches!(volume.wants, Wants::Claim(_)))
            }
            _ => false,
        };
        let waiting: Vec<String> = self.actual.keys().filter(by_claim).cloned().collect();
        waiting.iter().for_each(|uid| self.touch(uid));
    }
}
