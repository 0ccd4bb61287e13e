//! The memory available to this process.

use std::fs;
use std::path::Path;

/// The bytes that the process may use: the smallest of the machine's memory and the limits of its control groups
/// (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`). `None` if none can be read.
pub(super) fn memory() -> Option<usize> {
    least(Path::new("/"))
}

fn least(root: &Path) -> Option<usize> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").as_deref().and_then(total);
    let mut groups = Vec::new();
    for line in read("proc/self/cgroup").unwrap_or_default().lines() {
        // "0::/docward.service" of version 2, "7:memory:/docker/5f" of version 1.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (folder, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A container sees its own group as the root. The limits of all parent groups apply too.
        let group = Path::new(group.trim_start_matches('/'));
        groups.extend(group.ancestors().map(|group| Path::new(folder).join(group).join(file)));
    }
    let limit = |path: &Path| fs::read_to_string(root.join(path)).ok()?.trim().parse().ok();
    groups.iter().filter_map(|path| limit(path)).chain(machine).min()
}

/// "MemTotal:       24576000 kB"
fn total(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_applies() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(least(root.path()), None);
        write("proc/meminfo", "MemTotal:       4000 kB\nMemFree: 1 kB\n");
        assert_eq!(least(root.path()), Some(4_096_000));
        write("proc/self/cgroup", "0::/system.slice/docward.service\n");
        write("sys/fs/cgroup/system.slice/docward.service/memory.max", "max\n");
        assert_eq!(least(root.path()), Some(4_096_000));
        write("sys/fs/cgroup/system.slice/memory.max", "3000000\n");
        assert_eq!(least(root.path()), Some(3_000_000));
        write("proc/self/cgroup", "9:cpu:/a\n7:hugetlb,memory:/docker/5f\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
        assert_eq!(least(root.path()), Some(2_000_000));
    }
}
