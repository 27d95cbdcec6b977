//! How a file is opened.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::Step;
use super::file::{OPEN, failed, perform};
use super::{File, Status};
use crate::kernel::call;
use crate::kernel::caps::Capabilities;
use crate::kernel::path::{self, How};
use crate::ring::op::open::{Dir, Open};
use crate::turn::run::looks_now;

/// How to open a [`File`]; the same options as [`std::fs::OpenOptions`], and the same combinations are refused.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table");
/// use millstream::fs::OpenOptions;
///
/// let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o640).open(&path).await?;
/// file.write_at(4096, "page 1").await?;
/// # assert_eq!(file.metadata().await?.len(), 4102);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until `open`"]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    flags: OFlags,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            flags: OFlags::empty(),
        }
    }
}

impl OpenOptions {
    /// Neither for reading nor for writing: at least one of [`read`](Self::read), [`write`](Self::write) and
    /// [`append`](Self::append) is needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading.
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing at the end only: **whatever offset a write names, Linux appends**
    /// ([pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html), BUGS).
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Cuts the file to nothing when it is opened.
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Makes the file if there is none.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Makes the file, and fails if there is one, or a link, even if that leads nowhere.
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a file that is made, less the umask; 0o666 by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Further flags of [open(2)](https://man7.org/linux/man-pages/man2/open.2.html), such as `O_NOFOLLOW`; those that
    /// other options set are ignored. `O_DIRECT` wants aligned memory, which reads of up to 256 KiB in powers of two from
    /// 4 KiB on get, and nothing else does.
    pub fn custom_flags(mut self, flags: i32) -> Self {
        self.flags = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::ACCMODE;
        self
    }

    /// Opens the file. Links are followed. For paths that come from outside use [`Root`](super::Root).
    ///
    /// # Errors
    ///
    /// As open(2); `EINVAL` for options that contradict each other, `ESPIPE` for a FIFO, which has no offsets. The error
    /// holds an [`Error`](super::Error).
    ///
    /// # Cancellation
    ///
    /// Dropping the future closes what the open may still bring; a file may have been made or cut all the same.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let failed = |e: io::Error| failed(Step::Open, path, e);
        // The error of std says where the zero byte is.
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.into()))?;
        let how = self.how(ResolveFlags::empty()).map_err(failed)?;
        if looks_now()
            && let Some(fd) = self.open_now(&name).map_err(failed)?
        {
            return seekable(fd, path).map_err(failed);
        }
        let (open, _) = perform(Open::new(Dir::default(), name, how), OPEN, Step::Open, path).await?;
        seekable(open.into_fd().expect("internal: an open that was done"), path).map_err(failed)
    }

    /// Opens what the kernel has in memory; `None` if the disk may have to be asked or changed.
    fn open_now(&self, path: &CStr) -> io::Result<Option<OwnedFd>> {
        let only_opens = !(self.create || self.create_new || self.truncate) && self.flags.is_empty();
        if !only_opens || !Capabilities::get().openat2().is_yes() {
            return Ok(None);
        }
        match path::open_blocking(CWD, path, &self.how(ResolveFlags::CACHED)?) {
            Ok(fd) => Ok(Some(fd)),
            Err(e) => match Errno::from_io_error(&e) {
                // Linux before 5.12 does not know the flag.
                Some(Errno::AGAIN | Errno::INVAL) => Ok(None),
                _ => Err(e),
            },
        }
    }

    /// The options as the kernel takes them.
    fn how(&self, resolve: ResolveFlags) -> io::Result<How> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => OFlags::RDONLY,
            (false, true, false) => OFlags::WRONLY,
            (true, true, false) => OFlags::RDWR,
            (false, _, true) => OFlags::WRONLY | OFlags::APPEND,
            (true, _, true) => OFlags::RDWR | OFlags::APPEND,
            (false, false, false) => return Err(Errno::INVAL.into()),
        };
        let changes = self.truncate || self.create || self.create_new;
        if (changes && !self.write && !self.append) || (self.append && self.truncate && !self.create_new) {
            return Err(Errno::INVAL.into());
        }
        let make = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => OFlags::CREATE | OFlags::EXCL,
            (true, true, _) => OFlags::CREATE | OFlags::TRUNC,
            (true, false, _) => OFlags::CREATE,
            (false, true, _) => OFlags::TRUNC,
            (false, false, _) => OFlags::empty(),
        };
        // Without waiting, because opening a FIFO would wait for its other end.
        let always = OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(How::new(access | make | always | self.flags, Mode::from_raw_mode(self.mode), resolve))
    }
}

/// The file, if it has offsets: by ring, they would be ignored where it has none.
fn seekable(fd: OwnedFd, path: &Path) -> io::Result<File> {
    match Status::new(&call::status(fd.as_fd())?).is_fifo() {
        true => Err(Errno::SPIPE.into()),
        false => Ok(File::new(fd.into(), path)),
    }
}
