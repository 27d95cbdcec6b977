//! Requests of the kernel to the recorded file system.

use super::image::{Kind, Node};
use super::recorder::{Recorder, Result};
use crate::fuse::session::{Answer, Request};

/// The operation that creates an unnamed file.
pub(super) const TMPFILE: u32 = 51;

/// The status and names are asked for each time.
const VALID: u64 = 0;
/// `struct fuse_open_out`, with all flags off and a handle of 0.
const OPENED: [u8; 16] = [0; 16];
const FALLOC_FL_KEEP_SIZE: u32 = 1;

pub(super) fn answer(disk: &mut Recorder, request: Request<'_>) -> Answer {
    let node = request.node;
    match request.operation {
        // LOOKUP
        1 => entry(disk, disk.look_up(node, request.name(0).0)?),
        // GETATTR
        3 => Ok(disk.status(node)?.answer(VALID)),
        // SETATTR
        4 => set_status(disk, request),
        // READLINK
        5 => match &disk.node(node)?.kind {
            Kind::Link(to) => Ok(to.clone()),
            _ => Err(libc::EINVAL),
        },
        // SYMLINK
        6 => {
            let (name, rest) = request.name(0);
            let to = rest.strip_suffix(&[0]).unwrap_or(rest).to_vec();
            created(disk, node, Some(name), Node::new(Kind::Link(to), 0o777))
        }
        // MKDIR
        9 => {
            let directory = Node::new(Kind::Directory(std::collections::BTreeMap::new()), request.word(0) & 0o7777);
            created(disk, node, Some(request.name(8).0), directory)
        }
        // UNLINK, RMDIR
        10 | 11 => disk.unlink(node, request.name(0).0).map(|()| Vec::new()),
        // RENAME, RENAME2
        12 => rename(disk, request, 8, 0),
        45 => rename(disk, request, 16, request.word(8)),
        // LINK
        13 => {
            let linked = request.long(0);
            disk.link(linked, node, request.name(8).0)?;
            entry(disk, linked)
        }
        // OPEN, OPENDIR
        14 | 27 => Ok(OPENED.to_vec()),
        // READ
        15 => read(disk, node, request.long(8), request.word(16) as usize),
        // WRITE
        16 => {
            let bytes = &request.bytes(40)[..request.word(16) as usize];
            disk.write(node, request.long(8), bytes)?;
            Ok(count(bytes.len()))
        }
        // STATFS
        17 => Ok(statfs()),
        // RELEASE, FLUSH, RELEASEDIR
        18 | 25 | 29 => Ok(Vec::new()),
        // FSYNC, FSYNCDIR
        20 | 30 => {
            disk.sync(node, request.word(8) & 1 == 1);
            Ok(Vec::new())
        }
        // SETXATTR
        21 => {
            let (name, value) = request.name(8);
            disk.set_attribute(node, name, Some(&value[..request.word(0) as usize])).map(|()| Vec::new())
        }
        // GETXATTR
        22 => {
            let value = disk.node(node)?.attributes.get(request.name(8).0).ok_or(libc::ENODATA)?;
            attribute(value, request.word(0) as usize)
        }
        // LISTXATTR
        23 => {
            let names = disk.node(node)?.attributes.keys();
            attribute(&names.flat_map(|name| [&name[..], &[0]].concat()).collect::<Vec<_>>(), request.word(0) as usize)
        }
        // REMOVEXATTR
        24 => disk.set_attribute(node, request.name(0).0, None).map(|()| Vec::new()),
        // READDIR
        28 => names(disk, node, request.long(8), request.word(16) as usize),
        // CREATE
        35 => {
            let file = Node::empty_file(request.word(4) & 0o7777);
            Ok([created(disk, node, Some(request.name(16).0), file)?, OPENED.to_vec()].concat())
        }
        TMPFILE => {
            let file = Node::empty_file(request.word(4) & 0o7777);
            Ok([created(disk, node, None, file)?, OPENED.to_vec()].concat())
        }
        // FALLOCATE
        43 => match request.word(24) {
            mode @ (0 | FALLOC_FL_KEEP_SIZE) => {
                disk.allocate(node, request.long(8) + request.long(16), mode != 0).map(|()| Vec::new())
            }
            _ => Err(libc::EOPNOTSUPP),
        },
        // COPY_FILE_RANGE
        47 => {
            let bytes = read(disk, node, request.long(8), request.long(40) as usize)?;
            disk.write(request.long(16), request.long(32), &bytes)?;
            Ok(count(bytes.len()))
        }
        // The kernel then does without.
        _ => Err(libc::ENOSYS),
    }
}

fn entry(disk: &Recorder, node: u64) -> Answer {
    Ok(disk.status(node)?.entry(VALID))
}

fn created(disk: &mut Recorder, dir: u64, name: Option<&[u8]>, node: Node) -> Answer {
    let number = disk.create(dir, name, node)?;
    entry(disk, number)
}

fn rename(disk: &mut Recorder, request: Request<'_>, names: usize, flags: u32) -> Answer {
    let (from, rest) = request.name(names);
    let to = rest.strip_suffix(&[0]).unwrap_or(rest);
    disk.rename((request.node, from), (request.long(0), to), flags).map(|()| Vec::new())
}

fn read(disk: &Recorder, node: u64, at: u64, len: usize) -> Result<Vec<u8>> {
    let contents = disk.node(node)?.contents();
    let from = contents.len().min(at as usize);
    Ok(contents[from..contents.len().min(from + len)].to_vec())
}

/// `struct fuse_setattr_in`
fn set_status(disk: &mut Recorder, request: Request<'_>) -> Answer {
    let valid = |bit: u32| request.word(0) & bit != 0;
    let mode = valid(1).then(|| request.word(68));
    let owner = (valid(2).then(|| request.word(76)), valid(4).then(|| request.word(80)));
    let len = valid(8).then(|| request.long(16));
    disk.set_status(request.node, len, mode, owner)?;
    Ok(disk.status(request.node)?.answer(VALID))
}

/// `struct fuse_write_out`, which is also `struct fuse_getxattr_out`
fn count(bytes: usize) -> Vec<u8> {
    [(bytes as u32).to_ne_bytes(), [0; 4]].concat()
}

/// `struct fuse_statfs_out`: blocks of 4096 bytes, and names of 255.
fn statfs() -> Vec<u8> {
    let numbers = [1u64 << 20; 5];
    let sizes = [4096u32, 255, 4096, 0, 0, 0, 0, 0, 0, 0];
    numbers.iter().flat_map(|n| n.to_ne_bytes()).chain(sizes.iter().flat_map(|n| n.to_ne_bytes())).collect()
}

/// Returns a value, or its length if there is no room at all.
fn attribute(value: &[u8], room: usize) -> Answer {
    match room {
        0 => Ok(count(value.len())),
        room if room < value.len() => Err(libc::ERANGE),
        _ => Ok(value.to_vec()),
    }
}

/// `struct fuse_dirent` for each name from the offset on.
fn names(disk: &Recorder, node: u64, offset: u64, room: usize) -> Answer {
    let mut out = Vec::new();
    for (at, (name, found)) in (1u64..).zip(disk.directory(node)?).skip(offset as usize) {
        let kind = disk.status(*found)?.mode >> 12;
        let len = (24 + name.len()).next_multiple_of(8);
        if out.len() + len > room {
            break;
        }
        let end = out.len() + len;
        out.extend_from_slice(&found.to_ne_bytes());
        out.extend_from_slice(&at.to_ne_bytes());
        out.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(name);
        out.resize(end, 0);
    }
    Ok(out)
}
