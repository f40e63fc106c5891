//! The shares of the node that admitted pods have.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_model::PodUid;
use polylet_model::node;
use polylet_model::qos::QosClass;
use polylet_model::resources::QosRequests;

use super::PodRequest;

/// A pod with a share of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedPod {
    /// Its share.
    pub request: Arc<PodRequest>,
    /// The pod is terminating: its share becomes free without preemption.
    pub terminating: bool,
    /// A source serves the pod, or did. Others are of a previous process instance, and may be gone: no pod is
    /// rejected or preempted for their shares.
    pub served: bool,
}

/// The shares of all admitted pods, with sums per resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatedPods {
    pods: BTreeMap<PodUid, AllocatedPod>,
    /// Wider than the amounts, so that subtraction reverses addition.
    sums: BTreeMap<String, i128>,
    qos_sums: QosSums,
    /// The number of pods that no source serves.
    unserved: i128,
}

/// The sum of requests per QoS class, wider than the amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct QosSums {
    /// CPU of Burstable pods, in thousandths.
    burstable_cpu: i128,
    /// Memory of Burstable pods in bytes.
    burstable_memory: i128,
    /// Memory of Guaranteed pods in bytes.
    guaranteed_memory: i128,
}

impl QosSums {
    /// Adds a pod's request, or subtracts it with the sign -1.
    fn count(&mut self, request: &PodRequest, sign: i128) {
        let amount = |name| i128::from(request.requested(name)) * sign;
        match request.qos {
            QosClass::Guaranteed => self.guaranteed_memory += amount("memory"),
            QosClass::Burstable => {
                self.burstable_memory += amount("memory");
                self.burstable_cpu += amount("cpu");
            }
            QosClass::BestEffort => {}
        }
    }

    /// The sums as amounts.
    fn requests(self) -> QosRequests {
        QosRequests {
            burstable_cpu: saturated(self.burstable_cpu),
            burstable_memory: saturated(self.burstable_memory),
            guaranteed_memory: saturated(self.guaranteed_memory),
        }
    }
}

/// The amount that is closest to a sum.
fn saturated(sum: i128) -> i64 {
    let limit = if sum < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(sum).unwrap_or(limit)
}

impl AllocatedPods {
    /// Sets or removes a pod's share. True when some of a resource became free, or a source serves the pod
    /// now: pods that wait are decided on again.
    pub fn set(&mut self, uid: &PodUid, pod: Option<AllocatedPod>) -> bool {
        if self.pods.get(uid) == pod.as_ref() {
            return false;
        }
        let before = self.pods.remove(uid);
        if let Some(before) = &before {
            self.count(before, -1);
        }
        let freed = match (&before, &pod) {
            (Some(_), None) => true,
            (Some(before), Some(now)) => {
                let mut requests = before.request.requests.iter();
                before.served != now.served
                    || requests.any(|(name, amount)| now.request.requested(name) < *amount)
            }
            (None, _) => false,
        };
        if let Some(pod) = pod {
            self.count(&pod, 1);
            self.pods.insert(uid.clone(), pod);
        }
        freed
    }

    /// Adds a pod to all sums, or subtracts it with the sign -1.
    fn count(&mut self, pod: &AllocatedPod, sign: i128) {
        self.qos_sums.count(&pod.request, sign);
        self.unserved += i128::from(!pod.served) * sign;
        for (name, amount) in &pod.request.requests {
            let sum = self.sums.entry(name.clone()).or_default();
            *sum += i128::from(*amount) * sign;
        }
    }

    /// The sum of a resource's amounts.
    fn sum(&self, name: &str) -> i128 {
        if name == node::PODS {
            return i128::try_from(self.pods.len()).unwrap_or(i128::MAX);
        }
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// The amount of a resource that is allocated.
    pub fn used(&self, name: &str) -> i64 {
        saturated(self.sum(name))
    }

    /// The amount of a resource that all pods but one have.
    pub fn used_by_others(&self, name: &str, without: &str) -> i64 {
        let own = self.pods.get(without);
        let own = own.map_or(0, |pod| pod.request.requested(name));
        saturated(self.sum(name) - i128::from(own))
    }

    /// The shares of pods that sources serve, if there are others.
    pub fn served(&self) -> Option<AllocatedPods> {
        if self.unserved == 0 {
            return None;
        }
        let mut served = AllocatedPods::default();
        for (uid, pod) in self.pods.iter().filter(|(_, pod)| pod.served) {
            served.set(uid, Some(pod.clone()));
        }
        Some(served)
    }

    /// All pods with a share, by UID.
    pub fn pods(&self) -> impl Iterator<Item = (&str, &AllocatedPod)> {
        self.pods.iter().map(|(uid, pod)| (uid.as_str(), pod))
    }

    /// The sum of requests per QoS class, with one pod replaced.
    pub fn class_requests(&self, without: &str, instead: Option<&PodRequest>) -> QosRequests {
        let mut sums = self.qos_sums;
        if let Some(pod) = self.pods.get(without) {
            sums.count(&pod.request, -1);
        }
        if let Some(request) = instead {
            sums.count(request, 1);
        }
        sums.requests()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated_pod(cpu: i64, qos: QosClass) -> AllocatedPod {
        AllocatedPod {
            request: Arc::new(PodRequest {
                requests: [("cpu".to_owned(), cpu), ("memory".to_owned(), 10 * cpu)].into(),
                ports: Vec::new(),
                qos,
                priority: None,
                critical: false,
            }),
            terminating: false,
            served: true,
        }
    }

    /// CPU and memory of Burstable pods, and memory of Guaranteed pods.
    fn class_sums(requests: QosRequests) -> (i64, i64, i64) {
        (
            requests.burstable_cpu,
            requests.burstable_memory,
            requests.guaranteed_memory,
        )
    }

    #[test]
    fn sums_follow_the_allocated_pods() {
        let mut allocated = AllocatedPods::default();
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(100, QosClass::Burstable))));
        assert!(!allocated.set(&"b".into(), Some(allocated_pod(200, QosClass::Guaranteed))));
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(300, QosClass::Burstable))));
        assert_eq!((allocated.used("cpu"), allocated.used("pods")), (500, 2));
        let requests = |without: &str, instead: Option<&PodRequest>| {
            class_sums(allocated.class_requests(without, instead))
        };
        assert_eq!(requests("", None), (300, 3000, 2000));
        assert_eq!(requests("a", None), (0, 0, 2000));
        let more = allocated_pod(700, QosClass::Burstable);
        assert_eq!(requests("a", Some(&more.request)), (700, 7000, 2000));
        assert_eq!(allocated.used_by_others("cpu", "a"), 200);
        assert_eq!(allocated.used_by_others("pods", "a"), 1);
        assert_eq!(allocated.used_by_others("cpu", "c"), 500);
        // A smaller share frees resources.
        assert!(allocated.set(&"a".into(), Some(allocated_pod(250, QosClass::Burstable))));
        assert!(allocated.set(&"a".into(), None));
        assert!(!allocated.set(&"a".into(), None));
        assert_eq!((allocated.used("cpu"), allocated.used("pods")), (200, 1));
        assert!(allocated.set(&"b".into(), None));
        assert_eq!((allocated.used("cpu"), allocated.used("memory")), (0, 0));
        assert_eq!(allocated.class_requests("", None), QosRequests::default());
    }

    #[test]
    fn class_of_a_changed_pod_has_its_requests() {
        let mut allocated = AllocatedPods::default();
        for (qos, expected) in [
            (QosClass::Burstable, (100, 1000, 0)),
            (QosClass::Guaranteed, (0, 0, 1000)),
            (QosClass::BestEffort, (0, 0, 0)),
        ] {
            allocated.set(&"a".into(), Some(allocated_pod(100, qos)));
            let sums = class_sums(allocated.class_requests("b", None));
            assert_eq!(sums, expected, "{qos:?}");
        }
    }

    #[test]
    fn pods_that_request_more_than_an_amount_can_be_leave_nothing() {
        let mut allocated = AllocatedPods::default();
        let mut most = allocated_pod(0, QosClass::Burstable);
        let requests = &mut Arc::make_mut(&mut most.request).requests;
        requests.values_mut().for_each(|amount| *amount = i64::MAX);
        let other = allocated_pod(100, QosClass::Burstable);
        for (uid, pod) in [("a", &most), ("b", &most), ("c", &other)] {
            allocated.set(&uid.into(), Some(pod.clone()));
        }
        let sums = class_sums(allocated.class_requests("c", Some(&other.request)));
        assert_eq!(sums, (i64::MAX, i64::MAX, 0));
        assert_eq!(allocated.used("cpu"), i64::MAX);
        assert_eq!(allocated.used_by_others("cpu", "c"), i64::MAX);
        for uid in ["a", "b"] {
            allocated.set(&uid.into(), None);
        }
        let sums = class_sums(allocated.class_requests("", None));
        assert_eq!(sums, (100, 1000, 0));
        assert_eq!(allocated.used("cpu"), 100);
    }

    #[test]
    fn shares_of_pods_that_no_source_serves_are_left_out() {
        let mut allocated = AllocatedPods::default();
        allocated.set(&"a".into(), Some(allocated_pod(100, QosClass::Burstable)));
        assert_eq!(allocated.served(), None);
        let of_before = AllocatedPod {
            served: false,
            ..allocated_pod(200, QosClass::Burstable)
        };
        allocated.set(&"b".into(), Some(of_before.clone()));
        let served = allocated.served().unwrap();
        assert_eq!((served.used("cpu"), allocated.used("cpu")), (100, 300));
        let served = AllocatedPod {
            served: true,
            ..of_before.clone()
        };
        assert!(allocated.set(&"b".into(), Some(served)), "decide again");
        assert_eq!(allocated.served(), None);
        allocated.set(&"b".into(), Some(of_before));
        assert!(allocated.set(&"b".into(), None));
        assert_eq!(allocated.served(), None);
    }
}
