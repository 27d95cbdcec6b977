//! Options for opening files: those of the standard library, as flags of openat2.

use crate::sys::flags::{Mode, OFlags, ResolveFlags};
use crate::sys::path::How;

/// Options for opening a file, by `open` or as a step of a [`Chain`](super::Chain). They have the meaning of
/// [`std::fs::OpenOptions`], and the same combinations are invalid.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    beneath: bool,
    mode: u32,
    custom_flags: i32,
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
            beneath: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }
}

impl OpenOptions {
    /// Creates options with nothing set; at least one of `read`, `write` and `append` is required.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the file can be read.
    #[must_use]
    pub fn read(self, read: bool) -> Self {
        Self { read, ..self }
    }

    /// Sets whether the file can be written.
    #[must_use]
    pub fn write(self, write: bool) -> Self {
        Self { write, ..self }
    }

    /// Sets whether all writes append to the file, including those of `write_at`.
    #[must_use]
    pub fn append(self, append: bool) -> Self {
        Self { append, ..self }
    }

    /// Sets whether the file is truncated. Requires `write`.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// Sets whether a missing file is created. Requires `write` or `append`.
    #[must_use]
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Sets whether the file is created and must not exist. `create` and `truncate` are then ignored.
    #[must_use]
    pub fn create_new(self, create_new: bool) -> Self {
        Self { create_new, ..self }
    }

    /// Sets whether the path, including its links, must stay beneath its base: the directory of
    /// [`Chain::at`](super::Chain::at), or the working directory. Other paths, and absolute ones, fail with `EXDEV`.
    /// Uses `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS` of
    /// [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html), Linux 5.6.
    #[must_use]
    pub fn beneath(self, beneath: bool) -> Self {
        Self { beneath, ..self }
    }

    /// Sets the permissions of a created file, reduced by the umask; 0o666 by default.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// Sets further flags of [open(2)](https://man7.org/linux/man-pages/man2/open.2.html), such as `O_NOFOLLOW` or
    /// `O_DIRECT`. The access mode in them is ignored.
    #[must_use]
    pub fn custom_flags(self, flags: i32) -> Self {
        Self { custom_flags: flags, ..self }
    }

    /// Returns the options as flags, or the reason why they are invalid.
    pub(crate) fn how(self) -> Result<How, &'static str> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => OFlags::RDONLY,
            (false, true, false) => OFlags::WRONLY,
            (true, true, false) => OFlags::RDWR,
            (false, _, true) => OFlags::WRONLY | OFlags::APPEND,
            (true, _, true) => OFlags::RDWR | OFlags::APPEND,
            (false, false, false) => return Err("set at least one of read, write and append"),
        };
        if !self.write && !self.append && (self.truncate || self.create || self.create_new) {
            return Err("create and truncate require write or append");
        }
        if self.append && self.truncate && !self.create_new {
            return Err("truncate cannot be combined with append");
        }
        let creation = match (self.create_new, self.create, self.truncate) {
            (true, ..) => OFlags::CREATE | OFlags::EXCL,
            (false, create, truncate) => {
                let create = if create { OFlags::CREATE } else { OFlags::empty() };
                create | if truncate { OFlags::TRUNC } else { OFlags::empty() }
            }
        };
        let custom = OFlags::from_bits_retain(self.custom_flags.cast_unsigned()) - OFlags::ACCMODE;
        let resolve =
            if self.beneath { ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS } else { ResolveFlags::empty() };
        Ok(How::new(access | creation | custom, Mode::from_raw_mode(self.mode), resolve))
    }
}

#[cfg(test)]
mod tests;
