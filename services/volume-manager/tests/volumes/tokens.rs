//! Projected service account tokens.

use super::*;

#[test]
fn a_token_is_refreshed_and_missing_sources_are_reported() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        let mut api = pod(
            "u1",
            json!([{"name": "access", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt"}},
            ]}}]),
        );
        api["spec"]["securityContext"] = json!({"runAsUser": 7, "fsGroup": 9});
        api["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
        manager.apply(&api).await.unwrap();
        let keys = || manager.tokens.borrow().keys().cloned().collect::<Vec<_>>();
        let map = manager.objects.borrow().keys().next().cloned().unwrap();
        assert!(map.cluster, "{map}");
        let key = keys().pop().unwrap();
        manager
            .set_token(&key, Err("the API server is unavailable"), 0)
            .await;
        let failed = "MountVolume.SetUp failed for volume \"access\" : failed to fetch token: the API server is unavailable";
        manager.wait_for("u1", message_is(failed)).await;
        manager.set_token(&key, Ok("one"), 3600).await;
        manager
            .set_object_state(map.clone(), ObjectState::Absent)
            .await;
        let missing = "MountVolume.SetUp failed for volume \"access\" : configmap \"kube-root-ca.crt\" not found";
        manager.wait_for("u1", message_is(missing)).await;
        let mut events = manager.events.borrow().clone();
        // The same event may have been emitted again.
        events.dedup();
        assert_eq!(events, [failed, missing]);
        let there = br#"{"data": {"ca.crt": "x"}}"#;
        let there = ObjectState::from_json(ConfigMap, there);
        manager.set_object_state(map.clone(), there).await;
        manager.wait_mounted("u1").await;
        let file = root
            .pod("u1")
            .join("volumes/kubernetes.io~projected/access/token");
        let is = file.metadata().unwrap();
        assert_eq!((mode(&file), is.uid(), is.gid()), (0o640, 7, 9));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        // A failed refresh keeps the old token.
        manager.set_token(&key, Err("unavailable again"), 0).await;
        manager.set_token(&key, Ok("two"), 3600).await;
        let token = || fs::read_to_string(&file).unwrap();
        eventually("the new token", || token() == "two").await;
        manager.remove("u1").await;
        assert!(manager.tokens.borrow()[&key].is_cancelled());
    });
}
