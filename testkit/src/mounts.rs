//! Temporary file systems, unmounted when the test ends, even by a panic.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{HANGS, skip};

#[derive(Debug)]
pub struct Mount {
    /// Arguments of mount(8), to mount it again.
    arguments: Vec<String>,
    // Dropped after the file system was unmounted.
    dir: tempfile::TempDir,
}

/// Contents of the disk when the power is cut.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Writes that the file system issued on its own may be on the disk.
    LogFlushed,
    /// Only synced data are on the disk.
    LogLost,
    /// All bytes that the file system has written so far, for one without shutdown. Nothing may write meanwhile.
    Written,
}

impl Mount {
    /// Mounts a tmpfs. Returns `None` if this process may not mount.
    pub fn tmpfs(what: &str, size: &str) -> Option<Self> {
        Self::new(what, tempfile::tempdir().unwrap(), vec!["-ttmpfs".into(), format!("-osize={size}"), "none".into()])
    }

    /// Creates a file system of `megabytes` in a file with `mkfs`, and mounts it with `options`.
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

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", self.arguments.iter().map(OsStr::new).chain([self.path().as_os_str()]))
    }

    /// Cuts the power of a file system on a disk: nothing more is written to it, and every call fails. Then mounts it
    /// again, as after a reboot.
    pub fn cut_power(&self, cut: Cut) {
        // EXT4_IOC_SHUTDOWN, which xfs supports too, with its flags. Nearly every machine with mkfs has Perl.
        let program = "open(F, '<', $ARGV[0]) && ioctl(F, 0x8004587d, pack('L', $ARGV[1])) || die \"$!\\n\"";
        let flag = match cut {
            Cut::LogFlushed => "1",
            Cut::LogLost => "2",
            Cut::Written => return self.go_on_with_a_copy(),
        };
        run("perl", [OsStr::new("-e"), program.as_ref(), self.path().as_os_str(), flag.as_ref()]).unwrap();
        self.unmount();
        self.mount().unwrap();
    }

    /// Unmounts it once nobody uses it: a child of another test has copies of all descriptors from `fork` to `exec`.
    fn unmount(&self) {
        let since = Instant::now();
        while let Err(e) = run("umount", [self.path()]) {
            assert!(e.contains("busy") && since.elapsed() < HANGS, "{e}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Takes the image as it is, and mounts it in place of what unmounting makes of it.
    fn go_on_with_a_copy(&self) {
        let [image, copy] = ["image", "copy"].map(|name| self.dir.path().join(name));
        std::fs::copy(&image, &copy).unwrap();
        self.unmount();
        std::fs::rename(copy, image).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if run("umount", [self.path()]).is_err() {
            // A lazy unmount succeeds even if a process still uses the file system.
            let _ = run("umount", [Path::new("--lazy"), &self.path()]);
        }
    }
}

/// Runs a program to its end. The error is its output.
fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
