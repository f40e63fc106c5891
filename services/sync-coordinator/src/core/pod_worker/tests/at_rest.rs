//! Pods that run and do not change.

use std::sync::Arc;

use serde_json::json;

use crate::core::test_support::TestEnv;

#[test]
fn a_plan_of_a_running_pod_does_not_read_its_manifest() {
    let probe = json!({"exec": {"command": ["true"]}});
    let resources = json!({"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}});
    let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
    let spec = json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [{"name": "s", "image": "s:1", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "a:1", "resources": resources, "lifecycle": hook,
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}],
            "livenessProbe": probe, "readinessProbe": probe}]});
    for restarts_process in [false, true] {
        let mut env = TestEnv::new(spec.clone());
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a", "s"]);
        let spec = Arc::make_mut(env.pod.spec.as_mut().unwrap());
        spec.set_manifest(spec.manifest.unparsed());
        env.spec = env.pod.spec.clone().unwrap();
        if restarts_process {
            env.restart_process();
            env.run_until_idle();
        }
        assert!(env.plan().steps.is_empty());
        assert!(!env.spec.manifest.is_parsed());
        assert_eq!(env.spec.containers[0].spec.name, "s");
        assert!(env.spec.manifest.is_parsed());
    }
}
