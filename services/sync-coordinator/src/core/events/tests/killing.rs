use super::*;

/// The `Killing` events of a pod with a sidecar `s` and containers `a` and `b` after a change.
fn kill_events(policy: &str, change: impl FnOnce(&mut TestEnv)) -> Vec<(String, String, String)> {
    let rules = json!([{ "action": "RestartAllContainers",
        "exitCodes": { "operator": "In", "values": [42] } }]);
    let mut env = TestEnv::new(json!({
        "restartPolicy": policy, "terminationGracePeriodSeconds": 30,
        "initContainers": [{ "name": "s", "image": "s:1", "restartPolicy": "Always" }],
        "containers": [
            { "name": "a", "image": "a:1", "restartPolicyRules": rules, "restartPolicy": policy },
            { "name": "b", "image": "b:1" },
        ],
    }));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    change(&mut env);
    let mut events = sync(&mut env, &mut before);
    events.retain(|(_, reason, _)| reason == "Killing");
    events
}

#[test]
fn killing_has_the_kubelets_messages() {
    let failed_probe = |name: &'static str, startup: bool| {
        move |env: &mut TestEnv| {
            let id = env.running(name).unwrap();
            let message = String::new();
            let failure = ProbeFailure { startup, message };
            env.pod.probe_failures.insert(id, failure);
        }
    };
    let update = |at: &'static str, value: Value| {
        move |env: &mut TestEnv| {
            let mut spec = serde_json::to_value(env.spec.manifest.spec()).unwrap();
            *spec.pointer_mut(at).unwrap() = value;
            env.update_spec(&manifest(spec));
        }
    };
    let unknown = |name: &'static str| {
        move |env: &mut TestEnv| {
            let mut all = env.runtime.containers.iter_mut();
            all.find(|c| c.name == name).unwrap().state =
                crate::core::runtime_state::ContainerState::Unknown;
            env.relist();
        }
    };
    let (a, s) = ("spec.containers{a}", "spec.initContainers{s}");
    for (policy, change, path, message) in [
        (
            "Always",
            Box::new(failed_probe("a", true)) as Box<dyn FnOnce(&mut TestEnv)>,
            a,
            "Container a failed startup probe, will be restarted",
        ),
        (
            "Never",
            Box::new(failed_probe("a", false)),
            a,
            "Container a failed liveness probe",
        ),
        (
            "Always",
            Box::new(failed_probe("s", true)),
            s,
            "Init container s failed startup probe",
        ),
        (
            "Never",
            Box::new(failed_probe("s", false)),
            s,
            "Init container s failed liveness probe",
        ),
        (
            "Never",
            Box::new(update("/containers/0/image", "a:2".into())),
            a,
            "Container a definition changed, will be restarted",
        ),
        (
            "Always",
            Box::new(update("/initContainers/0/image", "s:2".into())),
            s,
            "Init container s definition changed",
        ),
        (
            "Always",
            Box::new(unknown("a")),
            a,
            "Container is in \"unknown\" state, try killing it before restart",
        ),
        (
            "Always",
            Box::new(unknown("s")),
            s,
            "Init container is in \"unknown\" state, try killing it before restart",
        ),
        (
            "Never",
            Box::new(|env: &mut TestEnv| env.exit_container("a", 42)),
            s,
            "killing",
        ),
        (
            "Never",
            Box::new(|env: &mut TestEnv| {
                env.exit_container("a", 1);
                env.exit_container("b", 1);
            }),
            s,
            "Stopping container s",
        ),
        (
            "Never",
            Box::new(move |env: &mut TestEnv| {
                env.exit_container("b", 0);
                failed_probe("a", false)(env);
            }),
            a,
            "Stopping container a",
        ),
    ] {
        let expected = event(path, "Killing", message);
        let mut events = kill_events(policy, change).into_iter();
        assert_eq!(events.find(|event| event.0 == path), Some(expected));
    }
}

#[test]
fn changes_during_a_stop_do_not_report_it_again() {
    let image = |image: &str| json!({"containers": [{"name": "a", "image": image}]});
    let mut env = TestEnv::new(image("a:1"));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    let mut stop = Vec::new();
    // The last change leaves nothing to stop.
    for (changed, reported) in [("a:2", 1), ("a:3", 0), ("a:1", 0)] {
        env.update_spec(&manifest(image(changed)));
        let plan = env.plan();
        let mut events = events(&env.view(), &before, &plan, at(0));
        events.retain(|event| event.reason == "Killing");
        assert_eq!(events.len(), reported, "{changed}");
        before = plan;
        stop.extend(env.start_steps());
    }
    for step in &stop {
        env.finish(step);
    }
    let mut events = sync(&mut env, &mut before);
    events.retain(|(_, reason, _)| reason == "Killing");
    assert_eq!(events, []);
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn killing_for_a_resize_does_not_mention_the_restart() {
    let spec = |memory: &str| -> Value {
        json!({"containers": [{"name": "a", "image": "img-a:1",
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            "resources": {"requests": {"memory": memory}}}]})
    };
    let mut env = TestEnv::new(spec("1Mi"));
    let mut before = Plan::default();
    sync(&mut env, &mut before);
    env.update_spec(&manifest(spec("2Mi")));
    let mut events = sync(&mut env, &mut before);
    events.retain(|(_, reason, _)| reason == "Killing");
    let message = "Container a resize requires restart";
    assert_eq!(events, [event("spec.containers{a}", "Killing", message)]);
}
