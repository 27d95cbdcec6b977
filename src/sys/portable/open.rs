//! Opening files beneath a directory, their status, and reading them. **All calls may wait for the disk** unless their
//! comment says otherwise.

use std::fs;
use std::io;
use std::path::{Component, Path};

use cap_fs_ext::{OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_primitives::fs as beneath;
use cap_primitives::fs::{FollowSymlinks, OpenOptions};

use super::errno::Errno;
use super::fd::{BorrowedFd, OwnedFd};
use super::retry::escape;
use super::status::Statx;
use super::{borrow, file};

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    ForDisk,
}

/// Fails as on a kernel that does not support it.
pub(crate) fn read_uncached(_: BorrowedFd<'_>, _: &mut [u8], _: u64, _: Wait) -> io::Result<usize> {
    Err(Errno::OPNOTSUPP.into())
}

/// Does nothing: the system drops pages by itself.
pub(crate) fn drop_cached(_: BorrowedFd<'_>, _: u64, _: u64) {}

/// Does nothing: only mappings are warmed.
pub(crate) fn warm_blocking(_: BorrowedFd<'_>, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

/// Whether [`open_beneath`] works without openat2, from one open directory to the next.
pub(crate) const WALKS_PATHS: bool = true;

/// Treatment of symbolic links by [`open_beneath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Fails with `ELOOP` on any link in the path.
    Refuse,
    Beneath,
}

/// Opens `path` for reading, resolved strictly beneath `dir`: component by component, each from the open directory
/// before it. Escapes fail with `EXDEV`. With `cached`, fails with `WouldBlock`. A FIFO opens without waiting: check
/// the file type.
pub(crate) fn open_beneath(dir: BorrowedFd<'_>, path: &Path, links: Links, cached: bool) -> io::Result<OwnedFd> {
    if cached {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let dir = borrow::file(dir);
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true);
    let opened = match links {
        Links::Beneath => open_or_name(&dir, path, &options),
        Links::Refuse => open_without_links(&dir, path, options.follow(FollowSymlinks::No)),
    };
    Ok(opened.map_err(escape)?.into())
}

fn open_without_links(dir: &fs::File, path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
    // The open directories from `dir` to the current one.
    let mut above: Vec<fs::File> = Vec::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let here = above.last().unwrap_or(dir);
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(above.pop().ok_or(Errno::XDEV)?),
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
            Component::Normal(name) => {
                let name = Path::new(name);
                let refused = |e: io::Error| match beneath::stat(here, name, FollowSymlinks::No) {
                    Ok(found) if found.is_symlink() => Errno::LOOP.into(),
                    _ => e,
                };
                if components.peek().is_none() {
                    return open_or_name(here, name, options).map_err(refused);
                }
                let next = beneath::open_dir_nofollow(here, name).map_err(refused)?;
                above.push(next);
            }
        }
    }
    above.pop().map_or_else(|| dir.try_clone(), Ok)
}

/// Opens a file. On Windows, a directory, which does not open as a file, fails with the error that names it.
fn open_or_name(dir: &fs::File, path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
    beneath::open(dir, path, options).map_err(|e| match beneath::stat(dir, path, FollowSymlinks::No) {
        Ok(found) if cfg!(windows) && found.is_dir() => Errno::ISDIR.into(),
        _ => e,
    })
}

/// Opens a directory for path resolution beneath it. **May wait for the disk.**
pub(crate) fn open_directory_blocking(path: &Path) -> io::Result<OwnedFd> {
    file::open_directory(path)
}

/// Returns the status of `path` beneath `dir` without following a final link. **May wait for the disk.**
pub(crate) fn status_at(dir: BorrowedFd<'_>, path: &Path) -> io::Result<Statx> {
    let dir = borrow::file(dir);
    let found = beneath::stat(&dir, path, FollowSymlinks::No).map_err(escape)?;
    #[cfg(windows)]
    if !found.is_symlink() {
        // Only an open file has a number.
        let opened = match found.is_dir() {
            true => beneath::open_dir_nofollow(&dir, path),
            false => beneath::open(&dir, path, OpenOptions::new().read(true).follow(FollowSymlinks::No)),
        };
        return Statx::of_file(&opened?);
    }
    Ok(Statx::new(&found))
}

/// Returns the status of the target of `path`. **May wait for the disk.**
pub(crate) fn status_of(path: &Path) -> io::Result<Statx> {
    #[cfg(unix)]
    return Ok(Statx::new(&beneath::Metadata::from_just_metadata(fs::metadata(path)?)));
    #[cfg(windows)]
    return match fs::metadata(path)?.is_dir() {
        true => Statx::of_file(&file::open_directory(path)?.into()),
        false => Statx::of_file(&fs::File::open(path)?),
    };
}

pub(crate) fn status(file: BorrowedFd<'_>) -> io::Result<Statx> {
    Statx::of_file(&borrow::file(file))
}

pub(crate) fn cached_status(file: BorrowedFd<'_>) -> io::Result<Statx> {
    status(file)
}

/// Reads at `offset` and **waits for the disk**; `Ok(0)` is the end of the file.
pub(crate) fn read_blocking(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file::read_piece(&borrow::file(file), buf, offset)
}

/// Writes at `offset` and **waits for the disk**.
pub(crate) fn write_blocking(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file::write_piece(&borrow::file(file), bytes, offset)
}
