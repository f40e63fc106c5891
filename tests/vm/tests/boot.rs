//! The machine itself: it boots, runs commands, reboots, and loses what was not flushed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use polylet_harness::guard;
use polylet_vm::{Hardware, ProgramSet, VirtualMachine, VmError, ok};

#[tokio::test]
#[ignore = "needs root, QEMU and built services: cargo verify -- --only vm"]
async fn machine_boots_and_loses_what_was_not_flushed() {
    guard::on_signals();
    let programs = ProgramSet::new(Path::new(env!("CARGO_BIN_EXE_polylet-vm-agent")));
    let say = |line: &str| eprintln!("{line}");
    let mut vm = ok(VirtualMachine::create(&programs, Hardware::default(), &say).await);
    println!("booted in {:.1?}", ok(vm.boot().await));
    commands(&vm).await;
    copies(&vm).await;
    surroundings(&vm).await;

    // Enough cuts that some lose everything and others a part.
    let mut random = fastrand::Rng::with_seed(7);
    let mut lost = 0;
    for round in 0..4 {
        let script = format!(
            "echo synced > /root/synced-{round}; sync /root/synced-{round} /root; \
             head -c 4M /dev/urandom > /root/not-synced; sync -d /root/not-synced & \
             head -c 4M /dev/urandom > /root/not-synced-either; wait"
        );
        ok(ok(vm.guest()).sh(&script).await);
        // In the disk's cache, and nothing has flushed it.
        let write = "dd if=/dev/urandom of=/root/in-cache bs=64k count=16 oflag=direct status=none";
        ok(ok(vm.guest()).sh(write).await);
        let loss = ok(vm.cut_power(&mut random));
        println!("round {round}: {loss:?}");
        assert!(loss.unflushed > 0, "the guest flushed everything: {loss:?}");
        lost += loss.lost;
        ok(vm.boot().await);
        let synced = ok(ok(vm.guest()).sh("cat /root/synced-*").await);
        assert_eq!(synced, "synced\n".repeat(round + 1), "flushed data is lost");
    }
    assert!(lost > 0, "no cut lost anything");

    ok(vm.power_off().await);
    ok(vm.check_file_system());
    println!("booted in {:.1?}", ok(vm.boot().await));
    println!("rebooted in {:.1?}", ok(vm.reboot().await));
    commands(&vm).await;
    ok(vm.remove());
}

async fn commands(vm: &VirtualMachine) {
    let guest = ok(vm.guest());
    assert_eq!(ok(guest.sh("echo $((6 * 7))").await), "42\n");
    let failed = guest.sh("echo why >&2; exit 4").await;
    match failed {
        Err(VmError::CommandFailed { status, output, .. }) => {
            assert_eq!((status.as_str(), output.as_str()), ("exit code 4", "why"));
        }
        other => panic!("{other:?}"),
    }
    let endless = guest.sh_within("sleep 1000", Duration::from_secs(1)).await;
    assert!(
        matches!(endless, Err(VmError::CommandTimeout { .. })),
        "{endless:?}"
    );
    ok(guest.write("/run/some/file", "content\n").await);
    assert_eq!(ok(guest.sh("cat /run/some/file").await), "content\n");
}

/// A file of several pieces that is no text, and a directory with a program in it.
async fn copies(vm: &VirtualMachine) {
    let guest = ok(vm.guest());
    let dir = vm.scratch().join("to-copy");
    let content: Vec<u8> = (0..9_000_001_u32)
        .map(|n| n.to_le_bytes()[n as usize % 4])
        .collect();
    let files: [(&str, &[u8], u32); 3] = [
        ("large", &content, 0o600),
        (
            "bin/program",
            b"#!/bin/sh\necho ran \"$1\"; exit 3\n",
            0o755,
        ),
        ("empty", b"", 0o644),
    ];
    std::fs::create_dir_all(dir.join("bin")).expect("a directory");
    for (name, content, mode) in files {
        std::fs::write(dir.join(name), content).expect("a file");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.join(name), permissions).expect("a mode");
    }
    let sum = polylet_harness::machine::run(
        Path::new("sha256sum"),
        &[&dir.join("large").display().to_string()],
    );
    let sum = ok(sum).split(' ').next().unwrap_or_default().to_owned();
    let begun = Instant::now();
    ok(guest.copy(&dir.join("large"), "/root/large file").await);
    println!("copied {} bytes in {:.1?}", content.len(), begun.elapsed());
    ok(guest.copy(&dir, "/root/a/directory").await);
    for copy in ["/root/large file", "/root/a/directory/large"] {
        let shown = ok(guest
            .sh(&format!("sha256sum < '{copy}'; stat -c %a '{copy}'"))
            .await);
        assert_eq!(shown, format!("{sum}  -\n600\n"), "{copy}");
    }
    assert_eq!(
        ok(guest.sh("stat -c %s /root/a/directory/empty").await),
        "0\n"
    );
    let output = ok(guest.output("/root/a/directory/bin/program twice").await);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(3), "ran twice\n")
    );
}

/// What the image promises: systemd as process 1, cgroup v2, a disk with a write cache.
async fn surroundings(vm: &VirtualMachine) {
    let guest = ok(vm.guest());
    for (script, expected) in [
        ("cat /proc/1/comm", "systemd\n"),
        ("stat -f -c %T /sys/fs/cgroup", "cgroup2fs\n"),
        ("cat /sys/block/vda/queue/write_cache", "write back\n"),
        (
            "grep -o VERSION_CODENAME=.* /etc/os-release",
            "VERSION_CODENAME=trixie\n",
        ),
        ("hostname", "vm\n"),
    ] {
        assert_eq!(ok(guest.sh(script).await), expected, "{script}");
    }
    ok(polylet_vm::node::containerd_ready(guest).await);
    let failed = ok(guest
        .sh("systemctl list-units --failed --no-legend --plain")
        .await);
    assert_eq!(failed, "", "failed units");
    for module in ["nfs", "nfsd", "fuse", "overlay", "bridge", "veth"] {
        ok(guest.sh(&format!("modprobe {module}")).await);
    }
    let took = ok(guest.sh("systemd-analyze time || true").await);
    println!("{}", took.trim());
}
