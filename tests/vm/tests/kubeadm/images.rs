use std::fs;
use std::path::{Path, PathBuf};

use polylet_harness::cluster::Programs;
use polylet_harness::image;
use polylet_harness::node::default_bin_dir;
use polylet_harness::tar::Tar;
use polylet_vm::ok;
use serde_json::json;

/// The programs of the control plane, each in an image of its own name.
pub(crate) const PROGRAMS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// What a program that is linked to the C library needs, at the same place in the image.
const LIBRARIES: [&str; 2] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libc.so.6",
];

/// Where the image's archive is on the disk of programs.
pub(crate) const ARCHIVE: &str = "control-plane.tar";

/// The Debian package's name there.
pub(crate) const PACKAGE: &str = "polylet.deb";

/// Builds the package and the images; returns all files that the machines need.
pub(crate) async fn prepare(directory: &Path) -> Vec<PathBuf> {
    let say = |line: &str| eprintln!("{line}");
    let programs = ok(Programs::ready(&say).await);
    let kubeadm = ok(Programs::kubeadm(&say).await);
    let mut own = Tar::default();
    for name in PROGRAMS {
        let program = ok(fs::read(ok(programs.path(name))));
        own.file(&format!("bin/{name}"), 0o755, &program);
    }
    for library in LIBRARIES {
        own.file(
            library.trim_start_matches('/'),
            0o755,
            &ok(fs::read(library)),
        );
    }
    let names = names(&kubeadm);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let config = json!({ "Env": ["PATH=/bin"] });
    let written = ok(image::write_with(directory, &names, &config, own));
    let archive = directory.join(ARCHIVE);
    ok(fs::rename(written, &archive));
    let package = directory.join(PACKAGE);
    let program = default_bin_dir().join("polylet-multicall");
    ok(polylet_packaging::deb::build(&program, &package, true));
    let found = ["kubelet", "kubectl"].map(|name| ok(programs.path(name)).to_owned());
    [package, archive, kubeadm]
        .into_iter()
        .chain(found)
        .collect()
}

/// The names under which kubeadm looks for the images of the programs.
fn names(kubeadm: &Path) -> Vec<String> {
    let args = [
        "config",
        "images",
        "list",
        "--kubernetes-version",
        "v1.36.3",
    ];
    let listed = ok(polylet_harness::machine::run(kubeadm, &args));
    let is_program = |name: &&str| {
        PROGRAMS
            .iter()
            .any(|program| name.contains(&format!("/{program}:")))
    };
    let names: Vec<String> = listed
        .lines()
        .filter(is_program)
        .map(str::to_owned)
        .collect();
    assert_eq!(names.len(), PROGRAMS.len(), "{listed}");
    names
}
