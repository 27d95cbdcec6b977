//! Calls on paths. All of them **may wait for the disk**. Paths relative to an open directory stay beneath it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::OpenOptionsSyncExt;
use cap_primitives::fs as beneath;

use super::errno::Errno;
use super::fd::{BorrowedFd, OwnedFd};
use super::flags::{Mode, OFlags, RenameFlags, ResolveFlags};
use super::retry::escape;
use super::{borrow, file, unsupported};

/// Base of relative paths: an open directory, or the working directory.
pub(crate) type At<'a> = Option<BorrowedFd<'a>>;
pub(crate) const CWD: At<'static> = None;

pub(crate) fn at(dir: BorrowedFd<'_>) -> At<'_> {
    Some(dir)
}

pub(crate) type Name = Path;
pub(crate) type NameBuf = PathBuf;

/// Copies a path. Fails if it contains a NUL byte.
pub(crate) fn name(path: &Path) -> io::Result<NameBuf> {
    match path.as_os_str().as_encoded_bytes().contains(&0) {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains a NUL byte")),
        false => Ok(path.to_owned()),
    }
}

/// Returns the path of these bytes, if this system has such paths.
pub(crate) fn of_bytes(path: &[u8]) -> Option<&Path> {
    #[cfg(unix)]
    return Some(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path)));
    #[cfg(windows)]
    return std::str::from_utf8(path).ok().map(Path::new);
}

/// Returns at most `max` bytes of a name, from its beginning.
pub(crate) fn beginning(name: &OsStr, max: usize) -> Cow<'_, OsStr> {
    match name.to_str() {
        _ if name.len() <= max => name.into(),
        Some(name) => OsStr::new(&name[..boundary(name, max)]).into(),
        None => {
            let mut name = name.to_string_lossy().into_owned();
            name.truncate(boundary(&name, max));
            std::ffi::OsString::from(name).into()
        }
    }
}

fn boundary(name: &str, max: usize) -> usize {
    (0..=max).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0)
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
}

impl How {
    pub(crate) fn new(flags: OFlags, mode: Mode, resolve: ResolveFlags) -> Self {
        Self { flags, mode, resolve }
    }

    pub(crate) fn and(self, flags: OFlags, resolve: ResolveFlags) -> Self {
        Self { flags: self.flags | flags, resolve: self.resolve | resolve, ..self }
    }

    pub(crate) fn may_wait(&self) -> bool {
        true
    }

    pub(crate) fn has(&self, flags: OFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Whether it reads, writes, appends, truncates, creates, and creates only.
    fn options(&self) -> [bool; 6] {
        let access = self.flags & OFlags::ACCMODE;
        let [append, truncate, create] = [OFlags::APPEND, OFlags::TRUNC, OFlags::CREATE].map(|flag| self.has(flag));
        let new = create && self.has(OFlags::EXCL);
        [access != OFlags::WRONLY, access != OFlags::RDONLY, append, truncate && !new, create && !new, new]
    }

    /// Flags of the system that have no option.
    #[cfg(unix)]
    fn custom(&self) -> i32 {
        let options = OFlags::ACCMODE | OFlags::APPEND | OFlags::TRUNC | OFlags::CREATE | OFlags::EXCL;
        (self.flags - options - OFlags::PATH - OFlags::TMPFILE).bits().cast_signed()
    }
}

/// Opens `path` relative to `dir`.
pub(crate) fn open_blocking(dir: At<'_>, path: &Name, how: &How) -> io::Result<OwnedFd> {
    if how.has(OFlags::TMPFILE) {
        return Err(unsupported("every file has a name"));
    }
    let [read, write, append, truncate, create, create_new] = how.options();
    if dir.is_none() && !how.resolve.contains(ResolveFlags::BENEATH) || path.is_absolute() && how.resolve.is_empty() {
        let mut options = OpenOptions::new();
        // With `append`, `write` has no further effect.
        options.read(read).write(write && !append).append(append);
        options.truncate(truncate).create(create).create_new(create_new);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, how.mode.bits() & 0o7777);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, how.custom());
        return Ok(options.open(path)?.into());
    }
    let mut options = beneath::OpenOptions::new();
    options.read(read).write(write && !append).append(append);
    options.truncate(truncate).create(create).create_new(create_new).nonblock(how.has(OFlags::NONBLOCK));
    #[cfg(unix)]
    beneath::OpenOptionsExt::mode(&mut options, how.mode.bits() & 0o7777);
    let from = Base::of(dir)?;
    Ok(beneath::open(from.file(), path, &options).map_err(escape)?.into())
}

/// The directory that a call begins at.
enum Base<'a> {
    Given(borrow::FileRef<'a>),
    Opened(std::fs::File),
}

impl<'a> Base<'a> {
    fn of(dir: At<'a>) -> io::Result<Self> {
        Ok(match dir {
            Some(dir) => Self::Given(borrow::file(dir)),
            None => Self::Opened(file::open_directory(Path::new("."))?.into()),
        })
    }

    fn file(&self) -> &std::fs::File {
        match self {
            Self::Given(file) => file,
            Self::Opened(file) => file,
        }
    }
}

/// Closes a descriptor. std does not return the result.
pub(crate) fn close_blocking(fd: OwnedFd) -> io::Result<()> {
    drop(fd);
    Ok(())
}

pub(crate) fn rename_blocking(
    (from_dir, from): (At<'_>, &Name),
    (to_dir, to): (At<'_>, &Name),
    flags: RenameFlags,
) -> io::Result<()> {
    if !flags.is_empty() {
        return Err(unsupported("a rename replaces an existing file"));
    }
    if from_dir.is_none() && to_dir.is_none() {
        return std::fs::rename(from, to);
    }
    let (from_dir, to_dir) = (Base::of(from_dir)?, Base::of(to_dir)?);
    beneath::rename(from_dir.file(), from, to_dir.file(), to).map_err(escape)
}

pub(crate) fn unlink_blocking(dir: At<'_>, path: &Name) -> io::Result<()> {
    match dir {
        None => std::fs::remove_file(path),
        Some(_) => beneath::remove_file(Base::of(dir)?.file(), path).map_err(escape),
    }
}

/// Creates a hard link. Whether a final link is followed depends on the system.
pub(crate) fn link_blocking((from_dir, from): (At<'_>, &Name), (to_dir, to): (At<'_>, &Name)) -> io::Result<()> {
    if from_dir.is_none() && to_dir.is_none() {
        return std::fs::hard_link(from, to);
    }
    let (from_dir, to_dir) = (Base::of(from_dir)?, Base::of(to_dir)?);
    beneath::hard_link(from_dir.file(), from, to_dir.file(), to).map_err(escape)
}
