//! The pods and their probes.

use super::*;

pub(crate) fn pods(servers: &Servers) -> BTreeMap<&'static str, String> {
    // Only the probe's own grace period ends this one in time.
    let deaf = "trap '' TERM; touch /www/alive; httpd -p 8080 -h /www; \
                until test -e /tmp/leave; do sleep 1; done";
    let alive = json!({ "httpGet": { "path": "/alive", "port": "web" } });
    let mut alive = each_second(alive, 1);
    alive["terminationGracePeriodSeconds"] = json!(1);
    let http = json!({
        "terminationGracePeriodSeconds": 600,
        "container": {
            "ports": [{ "name": "web", "containerPort": 8080 }],
            "startupProbe": each_second(json!({ "tcpSocket": { "port": "web" } }), 30),
            "livenessProbe": alive,
            "readinessProbe": each_second(json!({ "tcpSocket": { "port": 8080 } }), 1),
        },
    });
    let starting = json!({ "container": {
        "startupProbe": each_second(exec("test -e /tmp/started"), 600),
        "livenessProbe": each_second(exec("false"), 1),
    }});
    let stillborn = json!({ "container": {
        "startupProbe": each_second(exec("false"), 1),
        "livenessProbe": each_second(exec("true"), 1),
    }});
    let gate = json!({ "initContainers": [{
        "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
        "command": ["sh", "-c", RUNS],
        "startupProbe": each_second(exec("test -e /tmp/started"), 600),
        "livenessProbe": each_second(exec("test ! -e /tmp/sick"), 1),
    }]});
    let slow = json!({ "container": { "livenessProbe": each_second(exec("sleep 30"), 1) }});
    let never = json!({ "container": { "readinessProbe": each_second(exec("sleep 30"), 1) }});
    let ready = json!({ "container": {
        "readinessProbe": each_second(exec("test -e /tmp/ready"), 1),
        "livenessProbe": each_second(exec("test -e /tmp/ready"), 1),
    }});
    // Unready after SIGTERM, and slow to exit.
    let leaving = "touch /tmp/ready; trap 'rm /tmp/ready; sleep 3; exit 0' TERM; \
                   while :; do sleep 1 & wait $!; done";
    let with_probe = |kind: &str, probe: Value| {
        let network = json!({ "hostNetwork": true });
        let probe = json!({ "container": { kind: each_second(probe, 1) } });
        let both = [network, probe];
        let fields = both
            .iter()
            .flat_map(|fields| fields.as_object().unwrap().clone());
        Value::Object(fields.collect())
    };
    let get = |port, scheme: &str, path: &str| {
        let get = json!({ "host": "127.0.0.1", "port": port, "scheme": scheme, "path": path });
        json!({ "httpGet": get })
    };
    let check = |service| json!({ "grpc": { "port": servers.grpc, "service": service } });
    let here = with_probe("livenessProbe", get(servers.http, "HTTP", "/to/bad"));
    let redirected = with_probe("livenessProbe", get(servers.http, "HTTP", "/away"));
    let https = with_probe("readinessProbe", get(servers.https, "HTTPS", "/well"));
    let well = with_probe("readinessProbe", check("up"));
    let unknown_service = with_probe("readinessProbe", check("nobody"));
    let dead = with_probe("livenessProbe", check("down"));
    let run = |name, more: &Value| (name, pod(name, RUNS, more));
    let mut leaving = pod("leaving", leaving, &ready);
    leaving = leaving.replace(
        "\"terminationGracePeriodSeconds\":2",
        "\"terminationGracePeriodSeconds\":60",
    );
    BTreeMap::from([
        ("http", pod("http", deaf, &http)),
        ("leaving", leaving),
        run("starting", &starting),
        run("stillborn", &stillborn),
        run("gate", &gate),
        run("slow", &slow),
        run("never", &never),
        run("here", &here),
        run("away", &redirected),
        run("https", &https),
        run("grpc-well", &well),
        run("grpc-wrong", &unknown_service),
        run("grpc-dead", &dead),
    ])
}

fn exec(line: &str) -> Value {
    json!({ "exec": { "command": ["sh", "-c", line] } })
}

fn each_second(mut probe: Value, failures: u32) -> Value {
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(failures);
    probe
}
