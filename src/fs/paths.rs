//! Whole files by their paths: read, remove, rename, copy.

use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};

use super::error::{Error, Result, Step};
use super::file::{CHANGE, File, perform};
use super::replace::Replace;
use crate::ops::open::Dir;
use crate::ops::path::{Rename, Unlink};
use crate::sys::flags::RenameFlags;
use crate::sys::path as sys_path;
use crate::sys::path::NameBuf;

/// Length of a read past the length that the file had when it was opened.
const MORE: usize = 16 << 10;
/// Length from which on the memory is reserved first, so that a shortage is an error.
const LARGE: u64 = 64 << 20;

/// Reads a whole file into memory.
///
/// A small file in the page cache is opened and read at once, on this thread. Follows symbolic links, and reads files
/// without a length, such as those of `/proc`. For untrusted paths use [`Root`](super::Root).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("settings");
/// # std::fs::write(&path, "a = 1")?;
/// assert_eq!(millstream::fs::read(&path).await?, "a = 1");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails like [`File::open`] and [`File::read_at`]: with `EISDIR` for a directory, with `ESPIPE` for a FIFO, and with
/// `ErrorKind::OutOfMemory` if there is no memory for the file.
///
/// # Cancel safety
///
/// Nothing is lost but what was read.
pub async fn read(path: impl AsRef<Path>) -> Result<Bytes> {
    let file = File::open(path).await?;
    let len = file.opened().len();
    let first = match usize::try_from(len) {
        Ok(0) => MORE,
        // One more byte shows whether the file has grown.
        Ok(len) if len as u64 <= LARGE || Vec::<u8>::new().try_reserve_exact(len).is_ok() => len + 1,
        _ => return Err(file.failed(Step::Read, io::ErrorKind::OutOfMemory.into())),
    };
    let bytes = file.read_at(0, first).await?;
    if bytes.len() < first {
        return Ok(bytes);
    }
    let mut all = BytesMut::from(bytes);
    loop {
        let more = file.read_at(all.len() as u64, MORE.max(all.len())).await?;
        if more.is_empty() {
            return Ok(all.freeze());
        }
        all.extend_from_slice(&more);
    }
}

/// Reads a whole file as text: see [`read`].
///
/// # Errors
///
/// Fails like [`read`], and with `ErrorKind::InvalidData` if the bytes are not UTF-8.
///
/// # Cancel safety
///
/// Nothing is lost but what was read.
pub async fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let invalid = |e| Error::new(Step::Read, path, io::Error::new(io::ErrorKind::InvalidData, e));
    String::from_utf8(read(path).await?.into()).map_err(invalid)
}

/// Removes a name of a file: [unlink(2)](https://man7.org/linux/man-pages/man2/unlink.2.html). Processes that have the
/// file open keep it. Removes a symbolic link, not its target. If a power cut happens before the directory is synced,
/// the name may reappear.
///
/// # Errors
///
/// Fails with [`Step::Remove`]: `ENOENT` if there is no such name, `EISDIR` for a directory.
///
/// # Cancel safety
///
/// If the future is dropped, the name may be removed or not.
pub async fn remove(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let name = name(path, Step::Remove)?;
    perform(Unlink::new((Dir::default(), name)), CHANGE, Step::Remove, path).await.map(drop)
}

/// Renames a file or directory, [rename(2)](https://man7.org/linux/man-pages/man2/rename.2.html), and replaces a file
/// at `to`. Other processes see either the old name or the new one. If a power cut happens before the directory is
/// synced, the file may have either name. [`replace`](super::replace()) syncs the directory.
///
/// # Errors
///
/// Fails with [`Step::Rename`], and names `from`: `ENOENT` if there is none, `EXDEV` if `to` is on another file system.
///
/// # Cancel safety
///
/// If the future is dropped, the file may be renamed or not.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let old = name(from, Step::Rename)?;
    let new = name(to, Step::Rename)?;
    let rename = Rename::new((Dir::default(), old), (Dir::default(), new), RenameFlags::empty());
    perform(rename, CHANGE, Step::Rename, from).await.map(drop)
}

/// Copies a file: [`Replace::run_copy`] with the defaults of [`Replace`]. Returns the number of bytes.
///
/// Unlike with [`std::fs::copy`], the file at `to` is replaced in one step, so it is never empty or partial. A file
/// that is copied onto itself is not lost. After `Ok` the copy survives a power cut.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let (from, to) = (dir.path().join("table"), dir.path().join("table.bak"));
/// # std::fs::write(&from, "rows")?;
/// assert_eq!(millstream::fs::copy(&from, &to).await?, 4);
/// # assert_eq!(std::fs::read(&to)?, b"rows");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// See [`Replace::run_copy`].
///
/// # Cancel safety
///
/// As [`Replace::run`].
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    Replace::new(to).run_copy(from).await
}

fn name(path: &Path, step: Step) -> Result<NameBuf> {
    // The error of std contains the position of the zero byte.
    sys_path::name(path).map_err(|e| Error::new(step, path, e))
}
