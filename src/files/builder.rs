//! Builder of the file service.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cache::Store;
use super::entry::{Budget, Loader};
use super::service::Files;
use crate::body::Tag;
use crate::fs::Root;

/// Builder of [`Files`], returned by [`Files::builder`].
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

impl Files {
    /// Serves a directory with the defaults of [`FilesBuilder`], under the [safety contract](Self#safety-contract).
    pub fn new(dir: impl AsRef<Path>) -> io::Result<Self> {
        Self::builder(dir).build()
    }

    /// Returns a builder for a directory.
    pub fn builder(dir: impl AsRef<Path>) -> FilesBuilder {
        FilesBuilder::new(dir.as_ref())
    }
}

impl FilesBuilder {
    fn new(dir: &Path) -> Self {
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

    /// Sets how long an open file is served without a check that its name still leads to the same file with the same
    /// contents. One second by default. Zero checks for every request, which costs a `statx(2)` for the file and for
    /// each possible variant. The path of the directory is checked at the same interval: see [`Files`], "Deployments".
    pub fn validate_every(mut self, age: Duration) -> Self {
        self.validate_every = age;
        self
    }

    /// Sets the maximum number of open files; each variant counts as one. 1000 by default. They count against
    /// `RLIMIT_NOFILE`.
    pub fn capacity(mut self, files: usize) -> Self {
        self.capacity = files;
        self
    }

    /// Sets the maximum number of bytes of small files, up to 256 KiB each, that are kept mapped and in memory. 64 MiB
    /// by default. Other files are sent from the page cache with a few more system calls.
    pub fn kept_bytes(mut self, bytes: u64) -> Self {
        self.kept_bytes = bytes;
        self
    }

    /// Sets whether files may be mapped, under the [contract](crate::body::FileBody#safety-contract) that nothing
    /// writes to them in place. On by default. If off, every body is read into its own memory, which copies each byte,
    /// `sendfile` is not used, and nothing is [kept](Self::kept_bytes).
    pub fn mapped(mut self, on: bool) -> Self {
        self.mapped = on;
        self
    }

    /// Sets whether `name.br`, `name.zst` and `name.gz` are sent instead of `name` to clients that accept them. On by
    /// default. The writer of the files must keep them up to date.
    pub fn precompressed(mut self, on: bool) -> Self {
        self.precompressed = on;
        self
    }

    /// Sets whether entity tags include the `ctime`, the time of the last change of the inode. On by default: no
    /// program can set it, so a file rewritten in place gets another tag even if its length and `mtime` stay the same.
    ///
    /// The `ctime` differs between machines. Turn it off if several machines serve the same files to the same clients,
    /// and the deployment keeps the `mtime` (`rsync --times`, `tar`, `cp --preserve`): clients then revalidate and
    /// resume at any of them. The deployment must give each new version another length or `mtime`.
    pub fn ctime_in_tags(mut self, on: bool) -> Self {
        self.tag = if on { Tag::Changed } else { Tag::Modified };
        self
    }

    /// Sets whether symbolic links that stay beneath the directory are followed. Off by default. Links that lead out
    /// are never followed.
    pub fn follow_links_beneath(mut self, on: bool) -> Self {
        self.follow_links_beneath = on;
        self
    }

    /// Sets whether names that start with a dot are served. Off by default: many directories contain `.git` or `.env`.
    pub fn hidden(mut self, on: bool) -> Self {
        self.hidden = on;
        self
    }

    /// Sets the name of the file that is sent for a directory. `index.html` by default.
    pub fn index(mut self, name: impl Into<String>) -> Self {
        self.index = name.into();
        self
    }

    /// Sets the path where the directory is mounted, such as `/static`. It is removed from the front of every path;
    /// other paths get 404. For services without a router; axum's `nest_service` removes the prefix itself.
    pub fn mounted_at(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Opens the directory. This blocks on the disk: call it during start-up. A relative path is resolved against the
    /// current working directory.
    ///
    /// # Safety contract
    ///
    /// Unless [`mapped`](Self::mapped) is off, nothing may write to the files in place or truncate them while they are
    /// served: see [`FileBody`](crate::body::FileBody#safety-contract).
    ///
    /// # Errors
    ///
    /// Fails if the path is not a directory that this process may search, the index is not a plain file name, the mount
    /// path does not start with a slash or ends with one, or the kernel cannot confine paths to the directory
    /// (`ErrorKind::Unsupported`, see [`Root::open_dir`]).
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
