//! Typed system calls. None blocks unless its name says so, and none returns `EINTR`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use tokio::io::ReadBuf;

use super::signal::without_sigpipe;
use crate::counters::{Counter, count};

/// Maximum number of slices per call: hyper offers at most 64, and the kernel's `IOV_MAX` is 1024.
pub(crate) const IOV_LIMIT: usize = 64;

/// Sends `slices` in order, [sendmsg(2)](https://man7.org/linux/man-pages/man2/sendmsg.2.html). `more` keeps the last
/// segment open for later bytes (`MSG_MORE`). Returns the number of bytes accepted.
pub(crate) fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more {
        flags |= SendFlags::MORE;
    }
    debug_assert!(slices.len() <= IOV_LIMIT);
    let sent = match slices {
        // A single slice needs no message header, and the kernel has a faster path for it.
        [one] => retry_on_intr(|| rustix::net::send(socket, one, flags)),
        many => retry_on_intr(|| rustix::net::sendmsg(socket, many, &mut SendAncillaryBuffer::default(), flags)),
    };
    Ok(sent?)
}

/// Slices that are together no longer than this are copied and sent as one: that costs less than a message header,
/// which the kernel reads and checks.
const JOIN_MAX: usize = 512;

/// As [`send`], for slices of `len` bytes, which may be copied first.
pub(crate) fn send_joined(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], len: usize) -> io::Result<usize> {
    if slices.len() == 1 || len > JOIN_MAX {
        return send(socket, slices, false);
    }
    let mut space = [MaybeUninit::uninit(); JOIN_MAX];
    let mut joined = ReadBuf::uninit(&mut space);
    for slice in slices {
        joined.put_slice(slice);
    }
    send(socket, &[IoSlice::new(joined.filled())], false)
}

/// Sends up to `len` bytes of `file` from `offset`,
/// [sendfile(2)](https://man7.org/linux/man-pages/man2/sendfile.2.html). Leaves the file position unchanged. `Ok(0)`
/// with `len > 0` means that the file ends at or before `offset`.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let mut at = offset;
    Ok(without_sigpipe(|| retry_on_intr(|| rustix::fs::sendfile(socket, file, Some(&mut at), len)))?)
}

/// Receives into `spare`, whose first bytes are then initialised. With `peeks` the bytes stay in the socket
/// (`MSG_PEEK`).
#[inline]
pub(super) fn receive_uninit(socket: BorrowedFd<'_>, spare: &mut [MaybeUninit<u8>], peeks: bool) -> io::Result<usize> {
    let flags = RecvFlags::DONTWAIT | if peeks { RecvFlags::PEEK } else { RecvFlags::empty() };
    loop {
        count(Counter::Reads, 1);
        match rustix::net::recv(socket, &mut *spare, flags) {
            Ok((_, n)) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Flag of [preadv2(2)](https://man7.org/linux/man-pages/man2/preadv2.2.html), Linux 6.14: pages that the read loads
/// into the page cache are dropped afterwards. Pages that were cached before stay.
pub(crate) const RWF_DONTCACHE: u32 = 0x80;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    ForDisk,
}

/// Reads at `offset` with [`RWF_DONTCACHE`]. Without waiting, fails with `WouldBlock` if the read needs the disk. Fails
/// with `EOPNOTSUPP` if the kernel or the file system does not support it. `Ok(0)` is the end of the file.
pub(crate) fn read_uncached(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
    let mut flags = ReadWriteFlags::from_bits_retain(RWF_DONTCACHE);
    if wait == Wait::Never {
        flags |= ReadWriteFlags::NOWAIT;
    }
    let mut slices = [IoSliceMut::new(buf)];
    match retry_on_intr(|| rustix::io::preadv2(file, &mut slices, offset, flags)) {
        Ok(0) if wait == Wait::Never && !ends_by(file, offset) => Err(io::ErrorKind::WouldBlock.into()),
        other => Ok(other?),
    }
}

/// Drops the clean pages of a range from the page cache,
/// [posix_fadvise(2)](https://man7.org/linux/man-pages/man2/posix_fadvise.2.html). A page that is in use stays.
pub(crate) fn drop_cached(file: BorrowedFd<'_>, offset: u64, len: u64) {
    // This is only advice: if the kernel ignores it, the pages just stay in memory.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
}

/// Returns whether `file` is a regular file known to end at or before `offset`.
pub(super) fn ends_by(file: BorrowedFd<'_>, offset: u64) -> bool {
    known(file).is_ok_and(|(kind, size)| kind == FileType::RegularFile && size <= offset)
}

/// Returns whether `file` is a regular file known to extend beyond `offset`.
pub(crate) fn goes_on(file: BorrowedFd<'_>, offset: u64) -> bool {
    known(file).is_ok_and(|(kind, size)| kind == FileType::RegularFile && size > offset)
}

/// Returns the status of an open file as cached on this machine, without contacting a file server.
pub(crate) fn cached_status(file: BorrowedFd<'_>) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(retry_on_intr(|| rustix::fs::statx(file, "", flags, StatxFlags::BASIC_STATS))?)
}

/// Returns type and size of an open file as cached on this machine.
pub(crate) fn known(file: BorrowedFd<'_>) -> io::Result<(FileType, u64)> {
    let found = cached_status(file)?;
    Ok((FileType::from_raw_mode(found.stx_mode.into()), found.stx_size))
}

pub(super) fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cache: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    /// Same on all architectures but alpha.
    const SYS_CACHESTAT: libc::c_long = 451;
    const _: () = assert!(size_of::<Range>() == 16 && size_of::<Stat>() == 40);
    let range = Range { offset, len };
    let mut stat = Stat::default();
    // SAFETY: both structures have the layout of the kernel's <linux/mman.h> and outlive the call.
    let answer = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0u32) };
    if answer == 0 { Ok(stat.cache) } else { Err(io::Error::last_os_error()) }
}

/// Reads a range of `file` into the page cache and **waits for the disk**. Splices the pages to `/dev/null`, or else
/// reads them into a scratch buffer. Stops at the end of the file.
pub(crate) fn warm_blocking(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    static NULL: OnceLock<Option<File>> = OnceLock::new();
    let null = NULL.get_or_init(|| File::options().write(true).open("/dev/null").ok());
    let end = offset.saturating_add(len);
    let mut at = offset;
    if let Some(null) = null {
        while at < end {
            match send_file(null.as_fd(), file, at, (end - at) as usize) {
                Ok(0) => return Ok(()),
                Ok(n) => at += n as u64,
                Err(_) => break,
            }
        }
    }
    let mut scratch = [0u8; 64 << 10];
    while at < end {
        let want = scratch.len().min((end - at) as usize);
        match retry_on_intr(|| rustix::io::pread(file, &mut scratch[..want], at))? {
            0 => break,
            n => at += n as u64,
        }
    }
    Ok(())
}

/// Whether [`open_beneath`] works without openat2, from one open directory to the next.
pub(crate) const WALKS_PATHS: bool = false;

/// Treatment of symbolic links by [`open_beneath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Fails with `ELOOP` on any link in the path.
    Refuse,
    Beneath,
}

/// Opens `path` for reading, resolved strictly beneath `dir`,
/// [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html), Linux 5.6. Escapes fail with `EXDEV`. With
/// `cached`, the call fails with `EAGAIN` instead of reading directory entries from the disk (Linux 5.12), and with
/// `EXDEV` instead of crossing to another mount. A FIFO opens without waiting: check the file type.
pub(crate) fn open_beneath(dir: BorrowedFd<'_>, path: &Path, links: Links, cached: bool) -> io::Result<OwnedFd> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    if cached {
        resolve |= ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(retry_on_intr(|| rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve))?)
}

/// Opens a directory for path resolution beneath it. **May wait for the disk.**
pub(crate) fn open_directory_blocking(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?)
}

/// Returns the status of `path` beneath `dir` without following a final link,
/// [statx(2)](https://man7.org/linux/man-pages/man2/statx.2.html).
pub(crate) fn status_at(dir: BorrowedFd<'_>, path: &Path) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(retry_on_intr(|| rustix::fs::statx(dir, path, flags, StatxFlags::BASIC_STATS))?)
}

/// Returns the status of the target of `path`. **May wait for the disk.**
pub(crate) fn status_of(path: &Path) -> io::Result<Statx> {
    Ok(retry_on_intr(|| rustix::fs::statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS))?)
}

pub(crate) fn status(file: BorrowedFd<'_>) -> io::Result<Statx> {
    Ok(retry_on_intr(|| rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS))?)
}

/// Reads at `offset` and **waits for the disk**; `Ok(0)` is the end of the file.
pub(crate) fn read_blocking(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pread(file, &mut *buf, offset))?)
}

/// Writes at `offset` and **waits for the disk** if the page cache is full.
pub(crate) fn write_blocking(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn warming_past_the_end_stops_there() {
        let f = file(b"short");
        warm_blocking(f.as_fd(), 0, 1 << 30).unwrap();
        warm_blocking(f.as_fd(), 1 << 20, 1 << 20).unwrap();
    }

    #[test]
    fn open_beneath_refuses_every_way_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/in"), "in").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink("sub/in", dir.path().join("link")).unwrap();
        let root = open_directory_blocking(dir.path()).unwrap();
        let open = |path: &str, links| open_beneath(root.as_fd(), Path::new(path), links, false);
        assert!(open("sub/in", Links::Refuse).is_ok());
        for (path, links, errno) in [
            ("../x", Links::Refuse, Errno::XDEV),
            ("sub/../../x", Links::Beneath, Errno::XDEV),
            ("/etc/passwd", Links::Refuse, Errno::XDEV),
            ("out", Links::Refuse, Errno::LOOP),
            ("out", Links::Beneath, Errno::XDEV),
            ("link", Links::Refuse, Errno::LOOP),
        ] {
            assert_eq!(open(path, links).unwrap_err().raw_os_error(), Some(errno.raw_os_error()), "{path}");
        }
        assert!(open("link", Links::Beneath).is_ok());
    }
}
