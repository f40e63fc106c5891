//! The user and the cluster of a kubeconfig's current context.

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};

/// The user of the current context.
pub fn current_user(kubeconfig: &Kubeconfig) -> Option<&AuthInfo> {
    let name = current_context(kubeconfig)?.user.as_deref()?;
    let mut users = kubeconfig.auth_infos.iter();
    users.find(|user| user.name == name)?.auth_info.as_ref()
}

pub(crate) fn current_user_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut AuthInfo> {
    let name = current_context(kubeconfig)?.user.clone()?;
    let mut users = kubeconfig.auth_infos.iter_mut();
    users.find(|user| user.name == name)?.auth_info.as_mut()
}

pub(crate) fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = &current_context(kubeconfig)?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    clusters.find(|it| it.name == *name)?.cluster.as_ref()
}

pub(crate) fn current_cluster_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let name = current_context(kubeconfig)?.cluster.clone();
    let mut clusters = kubeconfig.clusters.iter_mut();
    clusters.find(|it| it.name == name)?.cluster.as_mut()
}

fn current_context(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let name = kubeconfig.current_context.as_deref()?;
    let mut contexts = kubeconfig.contexts.iter();
    contexts.find(|it| it.name == name)?.context.as_ref()
}
