//! The one task: hears declarations, objects and outcomes, starts steps, tells what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use polylet_kit::{CancellationToken, cause};
use polylet_watch::Store;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::notice::v1::ObjectRef;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use crate::convert::{self, CsiTold};
use crate::core::certificates::{self, CertificateKey};
use crate::core::csi::Registered;
use crate::core::declare::Refusal;
use crate::core::layout::VolumeId;
use crate::core::limits::Recount;
use crate::core::objects::{ObjectKey, ObjectState};
use crate::core::place::Place;
use crate::core::plan::{Desired, Step};
use crate::core::spec::{PodName, PodSpec};
use crate::core::state::{Mounted, Outcome, State};
use crate::core::sub_path::SubPath;
use crate::core::tokens::{Issued, TokenKey};
use crate::core::view::{self, Phase, PodView, VolumeView};
use crate::volume::sub_path::Parts;
use crate::watches::Watches;
use crate::worker::Worker;

mod steps;

/// Who declares, and in which order.
#[derive(Debug)]
pub struct From {
    /// The caller's incarnation.
    pub declarer: String,
    /// Rises within it.
    pub sequence: u64,
    /// What set it off.
    pub cause: Option<Cause>,
}

/// The answer to a declaration.
pub type Reply = oneshot::Sender<Result<PodVolumes, Refusal>>;

/// Parts of volumes for one container.
#[derive(Debug)]
pub struct PartsWanted {
    /// The pod.
    pub uid: String,
    /// The container.
    pub container: String,
    /// What it mounts.
    pub parts: Vec<SubPath>,
    /// What set it off.
    pub cause: Option<Cause>,
}

/// Everything that this service can hear.
pub enum Input {
    /// A pod's volumes are wanted.
    Apply(From, PodName, Arc<PodSpec>, Reply),
    /// A pod's containers are gone for good.
    Release(From, PodName, Reply),
    /// All that is wanted has been declared.
    Complete(String, u32, oneshot::Sender<Result<(), Refusal>>),
    /// A container needs parts of a pod's volumes; answered when they are there.
    SubPaths(PartsWanted, oneshot::Sender<Result<Vec<String>, String>>),
    /// An object is this now.
    Object(ObjectKey, ObjectState),
    /// A CSI driver has registered with this socket, or it is gone.
    Driver(PathBuf, Option<Registered>),
    /// The cluster says this of the node.
    Placed(Place),
    /// Somebody wants to know what volumes hold.
    Mounted(oneshot::Sender<Vec<Mounted>>),
    /// A token was asked for.
    Token(TokenKey, Result<Issued, String>),
    /// A certificate is this now.
    Certificate(CertificateKey, certificates::Told),
    /// A step has ended; the cause names its span, if it had one.
    Finished(Outcome, Option<Cause>),
}

/// Starts work that ends by itself.
pub type Spawn = Rc<dyn Fn(LocalBoxFuture<'static, ()>)>;

/// Whom people are told something about.
#[derive(Debug, Clone, PartialEq)]
pub enum About {
    /// A pod.
    Pod(PodRef),
    /// An object of the cluster.
    Object(ObjectRef),
}

/// Something that people are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Whom it is about.
    pub about: About,
    /// Something is amiss.
    pub warning: bool,
    /// The event's reason.
    pub reason: String,
    /// The event's words.
    pub message: String,
}

/// Tells people of pods' volumes.
pub type Notice = Rc<dyn Fn(Told)>;

/// The task's own things.
pub struct Runner {
    /// What is known.
    pub state: State,
    /// What is told.
    pub store: Store<String, PodVolumes>,
    /// Who performs steps.
    pub worker: Worker,
    /// How work is started.
    pub spawn: Spawn,
    /// Which objects are watched.
    pub watches: Watches<ObjectKey>,
    /// Which tokens are kept fresh.
    pub tokens: Watches<TokenKey>,
    /// Which certificates are followed.
    certificates: Watches<CertificateKey>,
    /// What the cluster is told of drivers and their volumes.
    csi: CsiTold,
    /// Which drivers are asked again how many volumes they can have.
    recounts: watch::Sender<BTreeMap<String, Recount>>,
    /// Who tells people of what is amiss.
    notice: Notice,
    /// Where outcomes go.
    pub inputs: mpsc::Sender<Input>,
    causes: BTreeMap<String, Cause>,
    /// What people were told last of each pod's volumes that cannot be mounted.
    amiss: BTreeMap<String, BTreeSet<String>>,
    /// Calls off what is being set up.
    setting_up: BTreeMap<VolumeId, CancellationToken>,
}

/// Answers that wait until what they tell has been published.
type Answers = Vec<(String, Reply)>;

impl Runner {
    /// A task that has done nothing yet.
    pub fn new(
        state: State,
        store: Store<String, PodVolumes>,
        worker: Worker,
        spawn: Spawn,
        watches: Watches<ObjectKey>,
        tokens: Watches<TokenKey>,
        inputs: mpsc::Sender<Input>,
    ) -> Self {
        Self {
            state,
            store,
            worker,
            spawn,
            watches,
            tokens,
            certificates: Watches::new(Rc::new(|_, _| {})),
            csi: CsiTold::default(),
            recounts: watch::Sender::default(),
            notice: Rc::new(|_| {}),
            amiss: BTreeMap::new(),
            inputs,
            causes: BTreeMap::new(),
            setting_up: BTreeMap::new(),
        }
    }

    /// Tells people of volumes.
    pub fn telling(self, notice: Notice) -> Self {
        Self { notice, ..self }
    }

    /// Follows the certificates that pods hold.
    pub fn with_certificates(self, certificates: Watches<CertificateKey>) -> Self {
        Self {
            certificates,
            ..self
        }
    }

    /// Tells the cluster of drivers and their volumes.
    pub fn telling_of_drivers(self, csi: CsiTold) -> Self {
        Self { csi, ..self }
    }

    /// Has drivers asked again how many volumes they can have.
    pub fn recounting(self, recounts: watch::Sender<BTreeMap<String, Recount>>) -> Self {
        Self { recounts, ..self }
    }

    /// Runs until draining starts.
    pub async fn run(mut self, mut heard: mpsc::Receiver<Input>, drain: CancellationToken) {
        self.publish(Timestamp::now());
        self.store.mark_whole();
        loop {
            let wake = self.state.wake_at();
            let input = tokio::select! {
                () = drain.cancelled() => break,
                input = heard.recv() => input,
                () = sleep_until(wake), if wake.is_some() => None,
            };
            let mut answers = Answers::new();
            let mut next = input;
            while let Some(input) = next {
                self.hear(input, &mut answers);
                // What has come already is taken together: one plan, one message to watchers.
                next = heard.try_recv().ok();
            }
            self.act(answers);
        }
        self.worker.stop();
    }

    fn hear(&mut self, input: Input, answers: &mut Answers) {
        match input {
            Input::Apply(from, pod, spec, reply) => {
                let uid = pod.uid.clone();
                match self.state.apply(&from.declarer, from.sequence, pod, spec) {
                    Ok(news) => self.declared(uid, from.cause.filter(|_| news), reply, answers),
                    Err(refusal) => answer(reply, Err(refusal)),
                }
            }
            Input::Release(from, pod, reply) => {
                let uid = pod.uid.clone();
                match self.state.release(&from.declarer, from.sequence, pod) {
                    Ok(()) => self.declared(uid, from.cause, reply, answers),
                    Err(refusal) => answer(reply, Err(refusal)),
                }
            }
            Input::Complete(declarer, pods, reply) => {
                answer(reply, self.state.complete(&declarer, pods));
            }
            Input::SubPaths(wanted, reply) => self.sub_paths(wanted, reply),
            Input::Object(key, state) => self.state.object(&key, state),
            Input::Driver(socket, driver) => {
                self.state.driver(&socket, driver);
                self.worker.drivers().set(&self.state.drivers());
            }
            Input::Placed(place) => self.state.placed(place),
            Input::Mounted(reply) => answer(reply, self.state.mounted()),
            Input::Token(key, answer) => self.state.token(&key, answer, Timestamp::now()),
            Input::Certificate(key, told) => self.state.certificate(&key, told),
            Input::Finished(outcome, cause) => {
                if let Some((uid, cause)) = Some(steps::uid_of(&outcome.step)).zip(cause) {
                    self.causes.insert(uid.to_owned(), cause);
                }
                if let Step::SetUp(id, _) = &outcome.step {
                    self.setting_up.remove(id);
                }
                self.state.finished(outcome, Timestamp::now());
            }
        }
    }

    /// Binds parts of volumes aside: one that hangs holds back its own container alone.
    fn sub_paths(&self, wanted: PartsWanted, reply: oneshot::Sender<Result<Vec<String>, String>>) {
        let PartsWanted {
            uid,
            container,
            parts,
            cause,
        } = wanted;
        let parts = match self.state.sub_paths(&uid, &container, parts) {
            Ok(parts) => Parts {
                pod: self.state.layout().pod(&uid),
                container,
                parts,
            },
            Err(why) => return answer(reply, Err(why)),
        };
        let pod = self.state.pod(&uid);
        let span = tracing::info_span!(
            "volume.sub_paths",
            k8s.pod.uid = uid,
            k8s.pod.name = pod.name,
            k8s.namespace.name = pod.namespace,
            k8s.container.name = parts.container,
        );
        cause::set_parent(&span, cause.as_ref());
        let worker = self.worker.clone();
        let work = async move {
            let places = parts.places();
            let done = worker.sub_paths(&uid, parts).await;
            answer(reply, done.map(|()| places));
        };
        (self.spawn)(Box::pin(work.instrument(span)));
    }

    fn declared(&mut self, uid: String, cause: Option<Cause>, reply: Reply, answers: &mut Answers) {
        if let Some(cause) = cause {
            self.causes.insert(uid.clone(), cause);
        }
        answers.push((uid, reply));
    }

    fn act(&mut self, answers: Answers) {
        let now = Timestamp::now();
        for step in self.state.next(now) {
            self.start(step);
        }
        // A pod that goes waits for nothing that hangs.
        let leaves = |id: &VolumeId| matches!(self.state.desired(&id.uid), Desired::Gone);
        let called_off = self.setting_up.iter().filter(|(id, _)| leaves(id));
        called_off.for_each(|(_, off)| off.cancel());
        self.watches.set(self.state.watched());
        self.tokens.set(self.state.tokens());
        self.certificates.set(self.state.certificates());
        self.publish(now);
        self.csi.publish(&self.state);
        let recounts = self.state.recounts();
        self.recounts.send_if_modified(|known| {
            let news = *known != recounts;
            *known = recounts;
            news
        });
        for (uid, reply) in answers {
            let gone = || PodVolumes {
                r#ref: Some(convert::pod_ref(&self.state.pod(&uid))),
                ..PodVolumes::default()
            };
            answer(reply, Ok(self.store.get(&uid).unwrap_or_else(gone)));
        }
    }

    fn publish(&mut self, now: Timestamp) {
        for (uid, view) in self.state.changes(now) {
            match view {
                Some(view) => {
                    self.tell_amiss(&view);
                    let cause = self.causes.get(&uid).cloned();
                    self.store
                        .upsert(uid.clone(), convert::volumes(&view, cause));
                }
                None => {
                    self.store.remove(&uid);
                    self.causes.remove(&uid);
                    self.amiss.remove(&uid);
                }
            }
            if let Some(noted) = self.state.note(&uid) {
                let worker = self.worker.clone();
                (self.spawn)(Box::pin(async move { worker.note(noted).await }));
            }
        }
    }

    /// Says once what keeps a pod's volumes from being mounted.
    fn tell_amiss(&mut self, view: &PodView) {
        let tells = |volume: &&VolumeView| {
            let waits = matches!(volume.phase, Phase::Waiting | Phase::Failed);
            view::reason(&volume.message)
                .is_some_and(|reason| waits || reason == "VolumeResizeFailed")
        };
        let said = view.volumes.iter().filter(tells);
        let said: BTreeSet<String> = said.map(|volume| volume.message.clone()).collect();
        let before = self.amiss.insert(view.pod.uid.clone(), said.clone());
        for news in said.difference(&before.unwrap_or_default()) {
            let reason = view::reason(news).unwrap_or("FailedMount");
            (self.notice)(Told {
                about: About::Pod(convert::pod_ref(&view.pod)),
                warning: true,
                reason: reason.to_owned(),
                message: news.clone(),
            });
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, with: T) {
    // A caller that has gone needs no answer.
    let _ = reply.send(with);
}

async fn sleep_until(at: Option<Timestamp>) {
    let Some(at) = at else { return };
    let left = at.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}
