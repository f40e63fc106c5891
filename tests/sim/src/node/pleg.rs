//! pleg: the real teller over the simulated runtime.

use polylet_pleg::core::{Hint, HintKind, Polled};
use polylet_pleg::teller::{Call as Asked, Refresh, Teller};
use polylet_watch::Store;
use polylet_wire::pleg::v1::RefreshPodResponse;
use tokio::sync::{oneshot, watch};

use crate::calls::Work;
use crate::world::{Who, World};

/// A life of it.
pub struct Pleg {
    /// Which.
    pub life: u32,
    /// Decides.
    pub teller: Teller,
}

/// Knows nothing yet.
pub fn start(world: &mut World, life: u32) {
    let store = Store::new(&format!("pleg-{life}"));
    let (reports, told) = watch::channel(Default::default());
    let teller = Teller::new(store.clone(), reports, world.now);
    world.stores.states = Some((life, store));
    world.stores.runtime = Some((life, told));
    world.pleg = Some(Pleg { life, teller });
    if world.rng.percent(50) {
        events(world, true);
    }
    act(world);
}

/// Tells what there is to tell, and makes its calls.
pub fn act(world: &mut World) {
    let now = world.now;
    let Some(pleg) = &mut world.pleg else { return };
    let calls = pleg.teller.act(now, |_, _| {});
    let life = pleg.life;
    for call in calls {
        let work = match call {
            Asked::Poll => Work::Poll,
            Asked::List { turn } => Work::List { turn, seen: None },
            Asked::Look { uid, view, known } => Work::Look { uid, view, known },
        };
        world.call(Who::Pleg, life, work);
    }
}

/// The runtime's events begin or end.
pub fn events(world: &mut World, flow: bool) {
    let now = world.now;
    if let Some(pleg) = &mut world.pleg {
        pleg.teller.events(flow, now);
    }
}

/// The runtime tells of an end; a hint that may be lost.
pub fn hint(world: &mut World, uid: &str, id: &str, kind: HintKind) {
    let now = world.now;
    if let Some(pleg) = &mut world.pleg {
        let hint = Hint {
            uid: Some(uid.to_owned()),
            id: id.to_owned(),
            kind,
            at: Some(now),
        };
        pleg.teller.hint(hint, now);
    }
    act(world);
}

/// A caller asks how a pod is now.
pub fn refresh(
    world: &mut World,
    uid: &str,
) -> Option<oneshot::Receiver<Result<RefreshPodResponse, String>>> {
    let (answer, answered) = oneshot::channel();
    let pleg = world.pleg.as_mut()?;
    pleg.teller.refresh(Refresh {
        uid: uid.to_owned(),
        anew: false,
        cause: Default::default(),
        answer,
    });
    act(world);
    Some(answered)
}

/// The runtime's word on itself.
pub fn polled(up: bool) -> Result<Polled, String> {
    let well = Polled {
        name: "sim".to_owned(),
        version: "1".to_owned(),
        ..Polled::default()
    };
    if up {
        Ok(well)
    } else {
        Err("the runtime is away".to_owned())
    }
}
