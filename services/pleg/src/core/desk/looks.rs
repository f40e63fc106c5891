use super::*;

/// After a look that failed: doubled each time, up to the last.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(10);
/// So long a change that nobody had asked for may still turn out to be a caller's.
const ADOPTION: Duration = Duration::from_secs(2);

impl Desk {
    pub(super) fn want_fresh(&mut self, uid: &str, first: bool) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.wish.fresh = true;
        }
        self.queue(uid, first);
    }

    pub(super) fn queue(&mut self, uid: &str, first: bool) {
        self.timers.remove(uid);
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if entry.wish.queued {
            return;
        }
        entry.wish.queued = true;
        // One look at a time: it goes into the line when the present one ends.
        if entry.look.is_none() {
            if first {
                self.ready.push_front(uid.to_owned());
            } else {
                self.ready.push_back(uid.to_owned());
            }
        }
    }

    pub(super) fn wake_at(&mut self, uid: &str, at: Timestamp) {
        let queued = self.pods.get(uid).is_some_and(|e| e.wish.queued);
        if !queued {
            let timer = self.timers.entry(uid.to_owned()).or_insert(at);
            *timer = at.min(*timer);
        }
    }

    pub(super) fn start_looks(&mut self, now: Timestamp) {
        while let Some(uid) = self.ready.pop_front() {
            let awaited = |e: &Entry| !e.wish.tokens.is_empty();
            if self.running >= LOOKS && !self.pods.get(&uid).is_some_and(awaited) {
                self.ready.push_front(uid);
                return;
            }
            let Some(entry) = self.pods.get_mut(&uid) else {
                continue;
            };
            let wish = std::mem::take(&mut entry.wish);
            let fresh = wish.fresh || !wish.tokens.is_empty();
            self.turn += 1;
            // A look with an old list counts from that list on.
            let listed = wish.listed.filter(|_| !fresh);
            let turn = listed.as_ref().map_or(self.turn, |(turn, _)| *turn);
            let known = entry.state.as_ref().filter(|_| !wish.anew);
            let known = known.map(|state| pod::known(state, now));
            entry.look = Some(Running {
                turn,
                began: if listed.is_some() {
                    Timestamp::MIN
                } else {
                    now
                },
                tokens: wish.tokens,
            });
            self.running += 1;
            self.timers.remove(&uid);
            self.steps.push(Step::Look {
                uid,
                view: listed.map(|(_, view)| view),
                known: known.unwrap_or_default(),
            });
        }
    }

    /// A look ended: with what was seen, or with why the runtime did not even list the pod.
    pub fn looked(&mut self, uid: &str, result: Result<Seen, String>, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(look) = entry.look.take() else {
            return;
        };
        self.running -= 1;
        match result {
            Ok(seen) => self.learn(uid, look, seen, now),
            Err(error) => self.look_failed(uid, look, error, now),
        }
        self.see_whether_whole();
        self.look_once_more(uid);
    }

    fn look_failed(&mut self, uid: &str, look: Running, error: String, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        entry.suspect = true;
        entry.failures += 1;
        // The first list has to be made anew: what it promised could not be seen.
        if matches!(self.whole, Whole::Listed(_)) {
            self.whole = Whole::No;
            self.relist_due = self.relist_due.min(later(now, RETRY_FIRST));
        }
        if entry.state.is_none() && !entry.wish.queued {
            self.pods.remove(uid);
        } else {
            let at = later(now, back_off(entry.failures));
            self.wake_at(uid, at);
        }
        self.answer(uid, look.tokens, Err(error));
    }

    fn learn(&mut self, uid: &str, look: Running, seen: Seen, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if let Whole::Listed(left) = &mut self.whole {
            left.remove(uid);
        }
        entry.looked = Some((look.turn, look.began));
        let before = entry.state.take();
        for id in before.iter().flat_map(ids) {
            self.owners.remove(id);
        }
        if seen.view.is_empty() {
            entry.suspect = false;
            entry.failures = 0;
            entry.ended.clear();
            if before.is_some() {
                self.publish(uid, None, look.tokens.clone(), now);
            }
            self.answer(uid, look.tokens, Ok(()));
            return;
        }
        let state = pod::merge(before.as_ref(), seen);
        for id in ids(&state) {
            self.owners.insert(id.to_owned(), uid.to_owned());
        }
        let changed = before.is_none_or(|before| !pod::same(&before, &state));
        entry.suspect = !state.inspect_error.is_empty();
        entry.failures = if entry.suspect { entry.failures + 1 } else { 0 };
        let retry = entry.suspect.then(|| later(now, back_off(entry.failures)));
        let again = pod::look_again_at(&state, now);
        let ended = entry.ended.looked(&state, look.began, now);
        let unasked = entry.unasked.take();
        entry.state = Some(state.clone());
        if changed {
            self.publish(uid, Some(Box::new(state)), look.tokens.clone(), now);
        } else if unasked.is_some_and(|at| now <= later(at, ADOPTION)) && !look.tokens.is_empty() {
            self.steps.push(Step::Adopt {
                uid: uid.to_owned(),
                tokens: look.tokens.clone(),
            });
        }
        self.answer(uid, look.tokens, Ok(()));
        // A look that failed in part is not made again sooner than that.
        let ended = ended.filter(|_| retry.is_none());
        for at in retry.into_iter().chain(again).chain(ended) {
            self.wake_at(uid, at);
        }
    }

    fn publish(
        &mut self,
        uid: &str,
        state: Option<Box<PodState>>,
        tokens: Vec<u64>,
        now: Timestamp,
    ) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.unasked = tokens.is_empty().then_some(now);
        }
        self.steps.push(Step::Publish {
            uid: uid.to_owned(),
            state,
            tokens,
        });
    }

    fn answer(&mut self, uid: &str, tokens: Vec<u64>, result: Result<(), String>) {
        if !tokens.is_empty() {
            self.steps.push(Step::Answer {
                uid: uid.to_owned(),
                tokens,
                result,
            });
        }
    }

    // What was wished for while the look was under way.
    fn look_once_more(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let wish = &mut entry.wish;
        let turn = entry.looked.map_or(0, |(turn, _)| turn);
        let old = wish.listed.as_ref().is_some_and(|(listed, view)| {
            let agrees = match &entry.state {
                Some(state) => view.agrees_with(state),
                None => view.is_empty(),
            };
            *listed < turn || (agrees && !entry.suspect)
        });
        if old {
            wish.listed = None;
        }
        if wish.listed.is_none() && !wish.fresh && wish.tokens.is_empty() {
            wish.queued = false;
            if entry.state.is_none() && !self.timers.contains_key(uid) {
                self.pods.remove(uid);
            }
        } else {
            self.ready.push_back(uid.to_owned());
        }
    }
}

fn ids(state: &PodState) -> impl Iterator<Item = &str> {
    let sandboxes = state.sandboxes.iter().map(|s| s.id.as_str());
    sandboxes.chain(state.containers.iter().map(|c| c.id.as_str()))
}

fn back_off(failures: u32) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(RETRY_LAST)
}
