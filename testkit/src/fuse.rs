//! A file system in user space whose opens and reads wait until they are let through: the part of
//! [fuse(4)](https://man7.org/linux/man-pages/man4/fuse.4.html) that one file needs.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::HANGS;

pub(crate) mod session;

use session::{Answer, ROOT, Request, Session, Status};

pub const NAME: &str = "file";
pub const CONTENTS: &[u8] = b"contents";

const OPEN: u32 = 14;
const READ: u32 = 15;

const FILE: u64 = 2;
/// The name and its attributes may be kept for an hour.
const VALID: u64 = 3600;

/// A mounted file system with one file. It is unmounted on drop.
#[derive(Debug)]
pub struct Fuse {
    session: Session,
    gate: Arc<Mutex<Option<Gate>>>,
}

#[derive(Debug)]
struct Gate {
    operation: u32,
    waiting: Sender<()>,
    open: Receiver<()>,
}

/// Holds back the next open or read until it is let through.
#[derive(Debug)]
pub struct Gatekeeper {
    waiting: Receiver<()>,
    open: Sender<()>,
}

impl Gatekeeper {
    /// Lets the next request through, once it waits.
    pub fn let_through(self) {
        self.await_request().open();
    }

    /// Waits until a request is held back.
    pub fn await_request(self) -> Self {
        self.waiting.recv_timeout(HANGS).expect("a request waits");
        self
    }

    /// Lets the request through that is held back.
    pub fn open(self) {
        self.open.send(()).expect("the request still waits");
    }
}

impl Fuse {
    /// Mounts the file system. Returns `None` if this process may not mount one.
    pub fn mount() -> Option<Self> {
        let gate = Arc::new(Mutex::new(None));
        let serving = Arc::clone(&gate);
        let session = Session::mount(move |request| answer(request, &serving))?;
        Some(Self { session, gate })
    }

    pub fn path(&self) -> &Path {
        self.session.path()
    }

    pub fn file(&self) -> PathBuf {
        self.session.path().join(NAME)
    }

    /// Makes the next open wait.
    pub fn gate(&self) -> Gatekeeper {
        self.gate_of(OPEN)
    }

    /// Makes the next read wait.
    pub fn gate_reads(&self) -> Gatekeeper {
        self.gate_of(READ)
    }

    fn gate_of(&self, operation: u32) -> Gatekeeper {
        let ((told, waiting), (open, wait)) = (channel(), channel());
        *self.gate.lock().unwrap() = Some(Gate { operation, waiting: told, open: wait });
        Gatekeeper { waiting, open }
    }
}

fn answer(request: Request<'_>, gate: &Mutex<Option<Gate>>) -> Answer {
    let held = gate.lock().unwrap().take_if(|gate| gate.operation == request.operation);
    if let Some(gate) = held {
        let _ = gate.waiting.send(());
        if gate.open.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the request was not let through");
        }
    }
    match request.operation {
        // LOOKUP
        1 if request.name(0).0 == NAME.as_bytes() => Ok(status(FILE).entry(VALID)),
        1 => Err(libc::ENOENT),
        // GETATTR
        3 => Ok(status(request.node).answer(VALID)),
        // All flags off and a handle of 0
        OPEN => Ok(vec![0; 16]),
        READ => Ok(CONTENTS[(request.long(8) as usize).min(CONTENTS.len())..].to_vec()),
        // RELEASE, FLUSH
        18 | 25 => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    }
}

fn status(node: u64) -> Status {
    let (len, mode) = if node == ROOT { (0, 0o040_755) } else { (CONTENTS.len() as u64, 0o100_644) };
    Status { node, len, mode, links: 1, owner: (0, 0) }
}
