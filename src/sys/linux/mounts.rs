//! File systems that open a file from the memory of this machine.
//!
//! `RESOLVE_CACHED` of [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html) only guarantees that the path
//! resolves without waiting. The open itself contacts a server on NFS, and a process on FUSE. statfs(2) contacts them
//! too, so the type is read from
//! [proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html).

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, StatxFlags};

/// File systems that contact no server and no other process. Files of all others are opened on the blocking pool.
const LOCAL: &[&str] = &[
    "bcachefs",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cramfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfs",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "minix",
    "msdos",
    "nilfs2",
    "ntfs3",
    "overlay",
    "proc",
    "ramfs",
    "reiserfs",
    "romfs",
    "rootfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "ubifs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// A mount: its number, which is reused after unmounting, and its device.
type Mount = (u64, u32, u32);

/// Returns whether opening a file on the mount of `on`, or reading it, may wait for a server or another process; `true`
/// if that is unknown. `on` may be opened with `O_PATH`. Does not wait.
pub(crate) fn may_wait(on: BorrowedFd<'_>) -> bool {
    static KNOWN: RwLock<Option<HashMap<Mount, bool>>> = RwLock::new(None);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    // `STATX_MNT_ID` is from Linux 5.8, RESOLVE_CACHED is newer.
    let Ok(found) = rustix::fs::statx(on, "", flags, StatxFlags::MNT_ID) else { return true };
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return true;
    }
    let mount = (found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|all| all.get(&mount).copied());
    known.unwrap_or_else(|| {
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let may_wait = type_of(&mounts, mount.0).is_none_or(|name| !LOCAL.contains(&name));
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(mount, may_wait);
        may_wait
    })
}

fn type_of(mounts: &str, number: u64) -> Option<&str> {
    let number = number.to_string();
    let mount = mounts.lines().find(|line| line.split(' ').next() == Some(&number))?;
    // Optional fields precede the hyphen; none of them is a hyphen.
    mount.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn the_type_of_a_mount_is_found_by_its_number() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
                      23 22 0:21 / /with\\040space rw - fuse.sshfs me@host:/ rw,user_id=0\n\
                      2 22 0:40 /a /b rw master:2 propagate_from:3 - nfs4 server:/a rw\n";
        assert_eq!(type_of(mounts, 22), Some("ext4"));
        assert_eq!(type_of(mounts, 23), Some("fuse.sshfs"));
        assert_eq!(type_of(mounts, 2), Some("nfs4"));
        assert_eq!(type_of(mounts, 3), None);
        assert_eq!(type_of("", 1), None);
    }

    #[test]
    fn files_of_the_kernel_are_local() {
        for path in ["/proc", "/proc/version"] {
            assert!(!may_wait(File::open(path).unwrap().as_fd()), "{path}");
        }
        // Pipes are on a mount that is not listed.
        assert!(may_wait(rustix::pipe::pipe().unwrap().0.as_fd()));
    }
}
