//! File systems of their own, gone when the test ends, however it ends.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::skip;

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    /// What is mounted, and with which options, for mounting it again.
    arguments: Vec<String>,
    // Dropped after the mount was undone.
    dir: tempfile::TempDir,
}

/// Whether the journal is written to the disk before the power is cut.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// What the file system had told the disk in its own time happens to be there.
    LogFlushed,
    /// Only what was asked for is there.
    LogLost,
}

impl Mount {
    /// A file system in memory, or `None` where this process may not mount one.
    pub fn tmpfs(what: &str, size: &str) -> Option<Self> {
        Self::new(what, tempfile::tempdir().unwrap(), vec!["-ttmpfs".into(), format!("-osize={size}"), "none".into()])
    }

    /// A new file system of `megabytes` in a file, made by `mkfs` and mounted with `options`.
    pub fn image(what: &str, mkfs: &str, megabytes: u64, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let mut words = mkfs.split(' ');
        if let Err(why) = run(words.next().unwrap(), words.map(OsStr::new).chain([image.as_os_str()])) {
            skip(what, why);
            return None;
        }
        Self::new(what, dir, vec![format!("-oloop,{options}"), image.display().to_string()])
    }

    fn new(what: &str, dir: tempfile::TempDir, arguments: Vec<String>) -> Option<Self> {
        let mount = Self { arguments, dir };
        std::fs::create_dir(mount.path()).unwrap();
        match mount.mount() {
            Ok(()) => Some(mount),
            Err(why) => {
                skip(what, why);
                None
            }
        }
    }

    /// Its root.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", self.arguments.iter().map(OsStr::new).chain([self.path().as_os_str()]))
    }

    /// Cuts the power of a file system on a disk: from now on nothing is written to it, and every call fails. Then mounts
    /// it again, as after a reboot.
    pub fn cut_power(&self, cut: Cut) {
        // EXT4_IOC_SHUTDOWN, which xfs has too, and its flags. Perl is on every machine that has mkfs, more or less.
        let program = "open(F, '<', $ARGV[0]) && ioctl(F, 0x8004587d, pack('L', $ARGV[1])) || die \"$!\\n\"";
        let flag = match cut {
            Cut::LogFlushed => "1",
            Cut::LogLost => "2",
        };
        run("perl", [OsStr::new("-e"), program.as_ref(), self.path().as_os_str(), flag.as_ref()]).unwrap();
        run("umount", [self.path()]).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if run("umount", [self.path()]).is_err() {
            // A process that is stuck in it must not keep it in the way of others.
            let _ = run("umount", [Path::new("--lazy"), &self.path()]);
        }
    }
}

/// Runs a program to its end; the error is what it said.
fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
