//! Probes: each uses one capability of the kernel once.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

#[cfg(uring)]
use super::uring::{Refused, Setup, Uring};
use super::{call, file, map, transfer};
use rustix::io::Errno;

/// The replacement of `openat2`.
pub(super) const WITHOUT_OPENAT2: &str = "directories are not served: no other call is as safe";

/// Returns name and version of the kernel.
pub(super) fn system() -> String {
    format!("Linux {}", rustix::system::uname().release().to_string_lossy())
}

/// Returns whether a probe failed for lack of descriptors or memory, and may succeed later.
pub(super) fn is_for_now(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    #[cfg(uring)]
    let errno = errno.or_else(|| Some(error.get_ref()?.downcast_ref::<Refused>()?.error()));
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn sample() -> io::Result<File> {
    let fd = rustix::fs::memfd_create("millstream-probe", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(b"millstream")?;
    Ok(file)
}

fn expect(what: bool) -> io::Result<()> {
    if what { Ok(()) } else { Err(io::Error::other("the call returned a wrong result")) }
}

fn arrived(at: &UnixStream, expected: &[u8]) -> io::Result<()> {
    at.set_nonblocking(true)?;
    let mut got = vec![0; expected.len()];
    expect(io::Read::read_exact(&mut &*at, &mut got).is_ok() && got == expected)
}

pub(super) fn sendfile() -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let sent = call::send_file(ours.as_fd(), sample()?.as_fd(), 4, 6)?;
    expect(sent == 6)?;
    arrived(&theirs, b"stream")
}

pub(super) fn read_nowait() -> io::Result<()> {
    // The program's own file, because memory files do not support the flag.
    let file = File::open("/proc/self/exe")?;
    let mut magic = [0; 4];
    let mut slices = [io::IoSliceMut::new(&mut magic)];
    match rustix::io::preadv2(&file, &mut slices, 0, rustix::io::ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn openat2() -> io::Result<()> {
    let root = call::open_directory_blocking(Path::new("/proc"))?;
    call::open_beneath(root.as_fd(), Path::new("version"), call::Links::Refuse, false)?;
    let escape = call::open_beneath(root.as_fd(), Path::new("../etc"), call::Links::Refuse, false);
    expect(escape.is_err_and(|e| e.raw_os_error() == Some(Errno::XDEV.raw_os_error())))
}

pub(super) fn cachestat() -> io::Result<()> {
    expect(call::cached_pages(sample()?.as_fd(), 0, 10)? == 1)
}

pub(super) fn mapping() -> io::Result<()> {
    let range = map::range().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    let mut granule = range.take()?;
    granule.map_file(sample()?.as_fd(), 0, 10)
}

#[cfg(not(uring))]
pub(super) fn io_uring() -> io::Result<()> {
    Err(io::Error::other("the crate was built without the feature `fs`"))
}

#[cfg(uring)]
pub(super) fn io_uring() -> io::Result<()> {
    Uring::new(Setup::default()).map(drop).map_err(io::Error::other)
}

pub(super) fn splice() -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let (read, write) = transfer::pipe()?;
    let filled = transfer::splice((sample()?.as_fd(), Some(4)), (write.as_fd(), None), 6)?;
    let emptied = transfer::splice((read.as_fd(), None), (ours.as_fd(), None), filled)?;
    expect(emptied == 6)?;
    arrived(&theirs, b"stream")
}

pub(super) fn copy_file_range() -> io::Result<()> {
    let to = sample()?;
    let copied = file::copy_range((sample()?.as_fd(), 4), (to.as_fd(), 0), 6)?;
    let mut got = [0; 6];
    call::read_blocking(to.as_fd(), &mut got, 0)?;
    expect(copied == 6 && &got == b"stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_does_not_wait_for_bytes_that_never_come() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"str").unwrap();
        assert!(arrived(&theirs, b"stream").is_err());
        ours.write_all(b"stream").unwrap();
        arrived(&theirs, b"stream").unwrap();
    }
}
