//! A mounted file system in user space: the mount, and the requests and answers of
//! [fuse(4)](https://man7.org/linux/man-pages/man4/fuse.4.html).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::skip;

/// The node of the root directory.
pub(crate) const ROOT: u64 = 1;

/// Maximum length of the data of one write. The kernel splits longer writes.
const WRITE_MAX: u32 = 1 << 20;
/// Room for the header of a write.
const HEAD_MAX: usize = 4096;

/// The body of an answer, or an error number.
pub(crate) type Answer = Result<Vec<u8>, i32>;

/// A request of the kernel. Offsets count from the end of its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) operation: u32,
    pub(crate) node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.body[at..at + 8].try_into().unwrap())
    }

    pub(crate) fn bytes(&self, at: usize) -> &'a [u8] {
        &self.body[at..]
    }

    /// Returns the text that ends with a zero byte at the offset `at`, and what follows it.
    pub(crate) fn name(&self, at: usize) -> (&'a [u8], &'a [u8]) {
        let end = at + self.body[at..].iter().position(|&b| b == 0).expect("the kernel ends names");
        (&self.body[at..end], &self.body[end + 1..])
    }
}

/// A mounted file system. It is unmounted on drop.
#[derive(Debug)]
pub(crate) struct Session(tempfile::TempDir);

impl Session {
    /// Mounts a file system that `answer` serves on a thread of its own. Returns `None`, and reports a skip, if this
    /// process may not mount one.
    pub(crate) fn mount(answer: impl FnMut(Request<'_>) -> Answer + Send + 'static) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        match open_and_mount(dir.path()) {
            Ok(device) => {
                std::thread::spawn(move || serve(device, answer));
                Some(Self(dir))
            }
            Err(why) => {
                skip("a file system in user space", why);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

fn open_and_mount(dir: &Path) -> std::io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    mount("none", dir, "fuse", MountFlags::NOSUID | MountFlags::NODEV, &*options)?;
    Ok(device)
}

/// Answers until the file system is unmounted.
fn serve(mut device: File, mut answer: impl FnMut(Request<'_>) -> Answer) {
    let mut bytes = vec![0; WRITE_MAX as usize + HEAD_MAX];
    while let Ok(len) = device.read(&mut bytes) {
        let header = Request { operation: 0, node: 0, body: &bytes[..40] };
        let (operation, unique, node) = (header.word(4), header.long(8), header.long(16));
        let answer = match operation {
            // FORGET, INTERRUPT, BATCH_FORGET
            2 | 36 | 42 => continue,
            26 => Ok(init()),
            _ => answer(Request { operation, node, body: &bytes[40..len] }),
        };
        let (errno, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let len = 16 + body.len() as u32;
        let reply = [&len.to_ne_bytes()[..], &errno.to_ne_bytes(), &unique.to_ne_bytes(), &body].concat();
        // The requesting process may have been killed.
        let _ = device.write(&reply);
    }
}

/// `struct fuse_init_out`: version 7.31, without a cache of writes, so that each write is one request.
fn init() -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    const MAX_PAGES: u32 = 1 << 22;
    let mut out = vec![0; 64];
    out[0..4].copy_from_slice(&7u32.to_ne_bytes());
    out[4..8].copy_from_slice(&31u32.to_ne_bytes());
    out[12..16].copy_from_slice(&(BIG_WRITES | MAX_PAGES).to_ne_bytes());
    out[20..24].copy_from_slice(&WRITE_MAX.to_ne_bytes());
    out[28..30].copy_from_slice(&((WRITE_MAX / 4096) as u16).to_ne_bytes());
    out
}

/// The attributes of a node, as the kernel gets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) node: u64,
    pub(crate) len: u64,
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) owner: (u32, u32),
}

impl Status {
    /// `struct fuse_attr`. All times are zero.
    pub(crate) fn attributes(&self) -> Vec<u8> {
        let mut out = vec![0; 88];
        out[0..8].copy_from_slice(&self.node.to_ne_bytes());
        out[8..16].copy_from_slice(&self.len.to_ne_bytes());
        out[60..64].copy_from_slice(&self.mode.to_ne_bytes());
        out[64..68].copy_from_slice(&self.links.to_ne_bytes());
        out[68..72].copy_from_slice(&self.owner.0.to_ne_bytes());
        out[72..76].copy_from_slice(&self.owner.1.to_ne_bytes());
        out[80..84].copy_from_slice(&4096u32.to_ne_bytes());
        out
    }

    /// `struct fuse_attr_out`, valid for `seconds`.
    pub(crate) fn answer(&self, seconds: u64) -> Vec<u8> {
        [&seconds.to_ne_bytes()[..], &[0; 8], &self.attributes()].concat()
    }

    /// `struct fuse_entry_out`: the name and the status are valid for `seconds`.
    pub(crate) fn entry(&self, seconds: u64) -> Vec<u8> {
        let valid = seconds.to_ne_bytes();
        [&self.node.to_ne_bytes()[..], &[0; 8], &valid, &valid, &[0; 8], &self.attributes()].concat()
    }
}
