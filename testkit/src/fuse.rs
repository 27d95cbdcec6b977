//! A file system in user space whose opens wait until they are let through: the part of
//! [fuse(4)](https://man7.org/linux/man-pages/man4/fuse.4.html) that one file needs.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::{HANGS, skip};

pub const NAME: &str = "file";
pub const CONTENTS: &[u8] = b"contents";

const ROOT: u64 = 1;
const FILE: u64 = 2;

/// A mounted file system with one file. It is unmounted on drop.
#[derive(Debug)]
pub struct Fuse {
    dir: tempfile::TempDir,
    gate: Arc<Mutex<Option<Gate>>>,
}

#[derive(Debug)]
struct Gate {
    opening: Sender<()>,
    open: Receiver<()>,
}

/// Holds back the next open until it is let through.
#[derive(Debug)]
pub struct Gatekeeper {
    opening: Receiver<()>,
    open: Sender<()>,
}

impl Gatekeeper {
    /// Lets the next open through, once it waits.
    pub fn let_through(self) {
        self.opening.recv_timeout(HANGS).expect("an open waits");
        self.open.send(()).expect("the open still waits");
    }
}

impl Fuse {
    /// Mounts the file system. Returns `None` if this process may not mount one.
    pub fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let device = match File::options().read(true).write(true).open("/dev/fuse") {
            Ok(device) => device,
            Err(why) => {
                skip("a file system in user space", why);
                return None;
            }
        };
        // The descriptor is the standard input of the program that mounts.
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "none"]).arg(dir.path());
        let output = mount.stdin(Stdio::from(device.try_clone().unwrap())).output();
        let refused = match &output {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(why) => Some(why.to_string()),
        };
        if let Some(why) = refused {
            skip("a file system in user space", why);
            return None;
        }
        let gate = Arc::new(Mutex::new(None));
        let serving = Arc::clone(&gate);
        std::thread::spawn(move || serve(device, &serving));
        Some(Self { dir, gate })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// Makes the next open wait.
    pub fn gate(&self) -> Gatekeeper {
        let ((told, opening), (open, wait)) = (channel(), channel());
        *self.gate.lock().unwrap() = Some(Gate { opening: told, open: wait });
        Gatekeeper { opening, open }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
    }
}

/// Answers until the file system is unmounted.
fn serve(mut device: File, gate: &Mutex<Option<Gate>>) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (operation, unique, node) = (word(4), long(8), long(16));
        let answer = match operation {
            // LOOKUP
            1 if request[40..len].split(|&b| b == 0).next() == Some(NAME.as_bytes()) => Ok(entry()),
            1 => Err(libc::ENOENT),
            // FORGET, BATCH_FORGET
            2 | 42 => continue,
            // GETATTR
            3 => Ok([&3600u64.to_ne_bytes()[..], &[0; 8], &attributes(node)].concat()),
            // OPEN, with all flags off and a handle of 0
            14 => {
                if let Some(gate) = gate.lock().unwrap().take() {
                    let _ = gate.opening.send(());
                    if gate.open.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
                        eprintln!("the open was not let through");
                    }
                }
                Ok(vec![0; 16])
            }
            // READ
            15 => {
                let from = (long(48) as usize).min(CONTENTS.len());
                Ok(CONTENTS[from..].to_vec())
            }
            // RELEASE, FLUSH
            18 | 25 => Ok(Vec::new()),
            // INIT: version 7.31, no flags, writes of up to 4096 bytes
            26 => {
                let mut out = [0; 64];
                out[0..4].copy_from_slice(&7u32.to_ne_bytes());
                out[4..8].copy_from_slice(&31u32.to_ne_bytes());
                out[20..24].copy_from_slice(&4096u32.to_ne_bytes());
                Ok(out.to_vec())
            }
            _ => Err(libc::ENOSYS),
        };
        let (errno, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let len = 16 + body.len() as u32;
        let reply = [&len.to_ne_bytes()[..], &errno.to_ne_bytes(), &unique.to_ne_bytes(), &body].concat();
        // The requesting process may have been killed.
        let _ = device.write(&reply);
    }
}

/// `struct fuse_entry_out`: the name and its attributes may be kept for an hour.
fn entry() -> Vec<u8> {
    let hour = 3600u64.to_ne_bytes();
    [&FILE.to_ne_bytes()[..], &0u64.to_ne_bytes(), &hour, &hour, &[0; 8], &attributes(FILE)].concat()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (size, mode) = if node == ROOT { (0, 0o040_755) } else { (CONTENTS.len() as u64, 0o100_644u32) };
    let mut attributes = vec![0; 88];
    attributes[0..8].copy_from_slice(&node.to_ne_bytes());
    attributes[8..16].copy_from_slice(&size.to_ne_bytes());
    attributes[60..64].copy_from_slice(&mode.to_ne_bytes());
    attributes[64..68].copy_from_slice(&1u32.to_ne_bytes());
    attributes
}
