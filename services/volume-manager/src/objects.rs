//! Watches the objects that pods refer to, each once, only while referred to.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures::StreamExt;
use polylet_kit::{CancellationToken, Ctx, Peer};
use polylet_watch::{Value, follow_value};
use polylet_wire::podconfig::v1::WatchObjectRequest;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use tokio::sync::mpsc;

use crate::convert;
use crate::core::objects::ObjectKey;
use crate::run::Input;

/// Starts to watch one object until the token is cancelled.
pub type Watch = Rc<dyn Fn(ObjectKey, CancellationToken)>;

/// The watches under way.
pub struct Watches {
    watch: Watch,
    running: BTreeMap<ObjectKey, CancellationToken>,
}

impl Watches {
    /// None yet.
    pub fn new(watch: Watch) -> Self {
        Self {
            watch,
            running: BTreeMap::new(),
        }
    }

    /// Watches exactly these.
    pub fn set(&mut self, wanted: BTreeSet<ObjectKey>) {
        self.running.retain(|key, token| {
            let keep = wanted.contains(key);
            if !keep {
                token.cancel();
            }
            keep
        });
        for key in wanted {
            if !self.running.contains_key(&key) {
                let token = CancellationToken::new();
                (self.watch)(key.clone(), token.clone());
                self.running.insert(key, token);
            }
        }
    }
}

/// Watches objects at pod-config.
pub fn from_peer(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Watch {
    let ctx = ctx.clone();
    Rc::new(move |key, token| {
        let (peer, inputs, drain) = (peer.clone(), inputs.clone(), ctx.drain());
        ctx.background("object", async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = drain.cancelled() => {}
                () = follow(key, peer, inputs) => {}
            }
        });
    })
}

async fn follow(key: ObjectKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let request = WatchObjectRequest {
        kind: key.kind.as_str().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        ..WatchObjectRequest::default()
    };
    let channel = peer.channel();
    let mut values = follow_value(peer, move || {
        let mut client = ObjectServiceClient::new(channel.clone());
        let request = request.clone();
        async move { client.watch_object(request).await }
    });
    while let Some(value) = values.next().await {
        // What was heard last stands while the stream is lost.
        let Value::Current(value) = value else {
            continue;
        };
        let state = convert::object(key.kind, value);
        if inputs
            .send(Input::Object(key.clone(), state))
            .await
            .is_err()
        {
            return;
        }
    }
}
