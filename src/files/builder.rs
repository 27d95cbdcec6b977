//! How a directory is to be served.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Files;
use super::cache::Store;
use super::entry::{Budget, Loader};
use crate::body::Tag;
use crate::fs::Root;

/// Settings of [`Files`]; made by [`Files::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before build"]
pub struct FilesBuilder {
    dir: PathBuf,
    validate_every: Duration,
    capacity: usize,
    kept_bytes: u64,
    mapped: bool,
    precompressed: bool,
    follow_links_beneath: bool,
    hidden: bool,
    tag: Tag,
    index: String,
    prefix: String,
}

impl FilesBuilder {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            validate_every: Duration::from_secs(1),
            capacity: 1000,
            kept_bytes: 64 << 20,
            mapped: true,
            precompressed: true,
            follow_links_beneath: false,
            hidden: false,
            tag: Tag::default(),
            index: "index.html".to_owned(),
            prefix: String::new(),
        }
    }

    /// How old the knowledge about an open file may be: after this time the next request looks whether its name still
    /// leads to the same file with the same contents. One second unless set; zero looks at every request, which costs a
    /// `statx(2)` for the file and one for each variant that it could have.
    ///
    /// As often, and not once for each file, it is looked whether the path of the directory still leads to the same
    /// directory: see [`Files`], "Deployments".
    pub fn validate_every(mut self, age: Duration) -> Self {
        self.validate_every = age;
        self
    }

    /// Most files that are kept open, each variant counting as one. 1000 unless set; they count against `RLIMIT_NOFILE`.
    pub fn capacity(mut self, files: usize) -> Self {
        self.capacity = files;
        self
    }

    /// Most bytes of small files, up to 256 KiB each, that are kept mapped and looked after so that they stay in memory.
    /// 64 MiB unless set. Other files are sent from the page cache just the same, with a few system calls more.
    pub fn kept_bytes(mut self, bytes: u64) -> Self {
        self.kept_bytes = bytes;
        self
    }

    /// Whether files may be mapped, under the [contract](crate::body::FileBody#safety-contract) that nothing writes to them
    /// in place. On unless turned off: then every body is read into memory of its own, a copy of each byte, `sendfile` is not
    /// used, and nothing is [kept](Self::kept_bytes).
    pub fn mapped(mut self, on: bool) -> Self {
        self.mapped = on;
        self
    }

    /// Whether `name.br`, `name.zst` and `name.gz` are sent instead of `name` to clients that accept them. On unless
    /// turned off. Keeping them up to date is left to whoever writes the files.
    pub fn precompressed(mut self, on: bool) -> Self {
        self.precompressed = on;
        self
    }

    /// Whether entity tags include the `ctime`, the time when the inode last changed. On unless turned off: no program can
    /// set it, so that a file has another tag even if it is rewritten in place with the same length and its `mtime`
    /// restored. But it differs from machine to machine, and so do the tags.
    ///
    /// Turn it off where several machines serve the same files to the same clients, and the deployment keeps the `mtime`
    /// (`rsync --times`, `tar`, `cp --preserve`): then a file has the same tag on all of them, made of its length and
    /// `mtime`, and clients revalidate and resume at any of them. The deployment must then give each new version another
    /// length or `mtime`.
    pub fn ctime_in_tags(mut self, on: bool) -> Self {
        self.tag = if on { Tag::Changed } else { Tag::Modified };
        self
    }

    /// Whether symbolic links that stay beneath the directory are followed. Off unless turned on; links that lead out
    /// are never followed.
    pub fn follow_links_beneath(mut self, on: bool) -> Self {
        self.follow_links_beneath = on;
        self
    }

    /// Whether names that start with a dot are served. Off unless turned on: `.git` and `.env` lie in many a directory.
    pub fn hidden(mut self, on: bool) -> Self {
        self.hidden = on;
        self
    }

    /// The name of the file that is sent for a directory. `index.html` unless set.
    pub fn index(mut self, name: impl Into<String>) -> Self {
        self.index = name.into();
        self
    }

    /// Where the directory is mounted, such as `/static`: taken off the front of every path; paths that do not begin
    /// with it lead nowhere. For services without a router; axum's `nest_service` takes the prefix off itself.
    pub fn mounted_at(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Opens the directory. This waits for the disk: call it while the service starts. A relative path is taken from the
    /// working directory of this moment.
    ///
    /// # Safety contract
    ///
    /// Unless [`mapped`](Self::mapped) is off, nothing may write to the files in place or truncate them while they are served:
    /// see [`FileBody`](crate::body::FileBody#safety-contract).
    ///
    /// # Errors
    ///
    /// The path is not a directory that this process may search, the index is not a plain file name, the place it is
    /// mounted at does not start with a slash or ends with one, or the kernel
    /// cannot keep paths beneath the directory (`ErrorKind::Unsupported`, see [`Root::open_dir`]).
    pub fn build(self) -> io::Result<Files> {
        if self.index.is_empty() || self.index.contains(['/', '\0']) || matches!(&self.index[..], "." | "..") {
            let message = format!("index {:?}: not a file name", self.index);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if !self.prefix.is_empty() && (!self.prefix.starts_with('/') || self.prefix.ends_with('/')) {
            let message = format!("mounted at {:?}: must start with a slash and not end with one", self.prefix);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let loader = Loader {
            root: Root::open_dir(&self.dir)?.follow_links_beneath(self.follow_links_beneath),
            generation: 0,
            index: self.index,
            mapped: self.mapped,
            precompressed: self.precompressed,
            tag: self.tag,
            budget: Arc::new(Budget::new(self.kept_bytes)),
        };
        let dir = std::path::absolute(&self.dir)?;
        let store = Store::new(dir, loader, self.validate_every, self.capacity);
        Ok(Files::of(store, self.hidden, self.prefix))
    }
}
