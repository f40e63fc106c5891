part() { echo "## $1"; shift; "$@" 2>&1; }
tell() {
part env sh -c 'env | sort'
part hosts cat /etc/hosts
part resolv cat /etc/resolv.conf
part hostname hostname
part domain cat /proc/sys/kernel/domainname
part etc-hostname cat /etc/hostname
part id id
part pwd pwd
part status grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Umask|Seccomp_filters)' /proc/self/status
part mounts sh -c "cut -d' ' -f4- /proc/self/mountinfo | sed -e 's/lowerdir=.*//' -e 's,main/[0-9a-f]* ,main/LOG ,' -e 's,/\\.\\.20[0-9_.]*/,/DATED/,' | sort"
part limits cat /proc/self/limits
part oom cat /proc/self/oom_score_adj
part cgroup cat /proc/self/cgroup
for file in cpu/cpu.shares cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes memory/memory.soft_limit_in_bytes pids/pids.max cpuset/cpuset.cpus hugetlb/hugetlb.2MB.limit_in_bytes blkio/blkio.weight; do
  part "$file" cat "/sys/fs/cgroup/$file"
done
part devices cat /sys/fs/cgroup/devices/devices.list
part dev sh -c "stat -c '%A %u %g %t:%T %n' /dev/*"
part namespaces sh -c 'ls /proc/self/ns'
part sysctl sh -c 'cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range /proc/sys/kernel/shm_rmid_forced'
part processes sh -c "ls /proc | grep -c '^1$'; cat /proc/1/comm"
part log stat -c '%a %u %g %s' /dev/termination-log
part shm stat -c '%a %u %g' /dev/shm
for dir in /var/run/secrets/kubernetes.io/serviceaccount /map /secret /info /all /scratch /memory /sub /sub-file /tmp /; do
  [ -e $dir ] && part "$dir" sh -c "stat -c '%A %u %g %F %n' $dir; find $dir -xdev -maxdepth 3 | grep -v -e '^/proc' -e '^/sys' -e '^/dev' -e '^/bin' -e '\.\.[0-9]' | sort | while read f; do stat -c '%A %u %g %F %n' \"\$f\"; readlink \"\$f\" | grep -v '\.\.20'; done"
done
for file in /map/* /secret/* /info/* /all/*; do [ -f "$file" ] && part "$file" cat "$file"; done
}
tell > /shared/.$ME; mv /shared/.$ME /shared/$ME
