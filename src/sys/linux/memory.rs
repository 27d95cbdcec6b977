//! Memory that this process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes of memory of the machine, or the least limit of the control groups of this process
/// ([cgroups(7)](https://man7.org/linux/man-pages/man7/cgroups.7.html)). Reads files of the kernel.
pub(crate) fn limit() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(files).flatten().filter_map(|file| of_file(&file)).fold(machine, u64::min)
}

/// Returns the files with the limits of a group and of its parents. `None` for other lines.
fn files(line: &str) -> Option<Vec<PathBuf>> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (top, name) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    // In a container the path is that of the host; only the topmost group exists here.
    Some(
        Path::new(path.trim_start_matches('/'))
            .ancestors()
            .map(|group| Path::new(top).join(group).join(name))
            .collect(),
    )
}

/// `None` without a limit: the text is then `max`, or more than any machine has.
fn of_file(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_groups_count() {
        let names =
            |line| files(line).map(|files| files.iter().map(|file| file.to_str().unwrap().to_owned()).collect());
        let two: Option<Vec<_>> = names("0::/a/b");
        assert_eq!(
            two.unwrap(),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        let one: Option<Vec<_>> = names("4:cpu,memory:/x");
        assert_eq!(one.unwrap()[0], "/sys/fs/cgroup/memory/x/memory.limit_in_bytes");
        assert_eq!(files("3:cpuset:/x"), None);
        assert_eq!(files("nonsense"), None);
        assert!(limit() > 1 << 20);
    }
}
