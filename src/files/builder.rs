//! Builder of the file service.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::budget::Budget;
use super::cache::Store;
use super::cache_control::{Asset, CacheControl};
use super::content_type::ContentTypes;
use super::document::Policy;
use super::loader::Loader;
use super::path::{self, Dots};
use super::service::{Files, FilesInner};
use crate::body::Tag;
use crate::fs::Root;
use crate::sys::memory;

/// Builder of [`Files`], returned by [`Files::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before build"]
pub struct FilesBuilder {
    dir: PathBuf,
    validate_every: Duration,
    capacity: usize,
    kept_bytes: u64,
    cached: Option<u64>,
    mapped: bool,
    precompressed: bool,
    only_compressed: bool,
    follow_links_beneath: bool,
    hidden: bool,
    well_known: bool,
    tag: Tag,
    index: String,
    prefix: String,
    fallback: Option<String>,
    not_found: Option<String>,
    listing: bool,
    content_types: ContentTypes,
    cache_control: Option<CacheControl>,
    /// The first argument that is no media type.
    refused: Option<String>,
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
            cached: None,
            mapped: true,
            precompressed: true,
            only_compressed: false,
            follow_links_beneath: false,
            hidden: false,
            well_known: true,
            tag: Tag::default(),
            index: "index.html".to_owned(),
            prefix: String::new(),
            fallback: None,
            not_found: None,
            listing: false,
            content_types: ContentTypes::default(),
            cache_control: None,
            refused: None,
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

    /// Sets the length in bytes above which a file is read past the page cache, so that its download does not push
    /// other files out of memory: see [`FileBody::uncached`](crate::body::FileBody::uncached), which costs more CPU
    /// time. A quarter of the memory of the machine, or of the limit of its control group, by default.
    pub fn uncached_above(mut self, bytes: u64) -> Self {
        self.cached = Some(bytes);
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

    /// Sets whether a file may exist in compressed variants only: `name.gz` without `name`. Off by default, because
    /// each request for an absent file then looks for three more files.
    ///
    /// Such a file is sent with its `Content-Encoding` to clients that accept it, and to those that send no
    /// `Accept-Encoding`, which accept every coding ([RFC 9110
    /// §12.5.3](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3)). Other clients get 406. Has no effect if
    /// [`precompressed`](Self::precompressed) is off.
    pub fn only_compressed(mut self, on: bool) -> Self {
        self.only_compressed = on;
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

    /// Sets whether all names that start with a dot are served. Off by default: many directories contain `.git` or
    /// `.env`. On, [`well_known`](Self::well_known) has no effect.
    pub fn hidden(mut self, on: bool) -> Self {
        self.hidden = on;
        self
    }

    /// Sets whether `.well-known` directly beneath the directory is served, without other names that start with a dot.
    /// On by default: [RFC 8615](https://www.rfc-editor.org/rfc/rfc8615) reserves it for public files.
    pub fn well_known(mut self, on: bool) -> Self {
        self.well_known = on;
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

    /// Sets the file that answers for absent files with status 200: usually `index.html`, for an application that
    /// routes in the browser. None by default. `name` is a path beneath the directory.
    ///
    /// A path with the extension of a script, a style, an image or another known type except HTML still gets 404: a
    /// browser that requests an absent script must not get a page. The same applies to names beneath `.well-known`,
    /// hidden names, paths that lead out, and files that are not served. The file is validated like any other, so it
    /// may be replaced by a rename.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.fallback = Some(name.into());
        self
    }

    /// Sets the page that is sent with status 404. By default the body is empty. `name` is a path beneath the
    /// directory. The page is sent without validators and without `Cache-Control`; preconditions and ranges are
    /// ignored.
    pub fn not_found_page(mut self, name: impl Into<String>) -> Self {
        self.not_found = Some(name.into());
        self
    }

    /// Sets whether a directory without an index is listed: as a page, or as JSON for clients that prefer
    /// `application/json`. Off by default.
    ///
    /// The query `sort=name`, `size` or `modified` and `order=asc` or `desc` select the order. Directories come first.
    /// Hidden names are not listed, nor links that are not followed, nor anything but files and directories. Files that
    /// this process may not read are listed. The JSON is an object: `{"path": …, "truncated": false, "entries":
    /// [{"name", "type": "file" | "directory", "size", "modified"}, …]}` with `modified` as an HTTP date. The names of
    /// the directory are in memory while it is read and sent; at most 100 000 are listed. Four directories are read at
    /// once, and further requests wait. If the names of all listings that are being read or sent take 64 MiB, further
    /// ones get 503.
    pub fn listing(mut self, on: bool) -> Self {
        self.listing = on;
        self
    }

    /// Sets the `Content-Type` of files with an extension, such as `"ts"` or `"tar"`, without regard to case; `""` is
    /// for names without an extension. It replaces the default type.
    pub fn content_type(mut self, extension: &str, content_type: &str) -> Self {
        match HeaderValue::from_str(content_type) {
            Ok(value) => self.content_types.set(extension, value),
            Err(_) => self.refused = self.refused.or_else(|| Some(content_type.to_owned())),
        }
        self
    }

    /// Sets the rule that returns the `Cache-Control` of each file: of statuses 200, 206 and 304, never of errors. None
    /// by default. The rule is called when a file is opened, and its answer is kept until the file changes.
    ///
    /// [`cache_by_name`](super::cache_by_name) is the usual rule for a site made by a bundler.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dist = dir.path();
    /// use http::HeaderValue;
    /// use millstream::files::{Files, cache_by_name};
    ///
    /// let files = Files::builder(dist).fallback("index.html").cache_control(cache_by_name).build()?;
    /// let short = Files::builder(dist)
    ///     .cache_control(|asset| (!asset.is_page()).then(|| HeaderValue::from_static("public, max-age=60")))
    ///     .build()?;
    /// # drop((files, short));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_control(mut self, rule: impl Fn(&Asset<'_>) -> Option<HeaderValue> + Send + Sync + 'static) -> Self {
        self.cache_control = Some(CacheControl::new(rule));
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
    /// Fails if the path is not a directory that this process may search, the index is not a plain file name, the
    /// fallback or the not-found page is not the path of a file beneath the directory (the file need not exist), a
    /// content type is not a header value, the mount path does not start with a slash or ends with one, or the kernel
    /// cannot confine paths to the directory (`ErrorKind::Unsupported`, see [`Root::open_dir`]).
    pub fn build(self) -> io::Result<Files> {
        let dots = match (self.hidden, self.well_known) {
            (true, _) => Dots::All,
            (false, true) => Dots::WellKnown,
            (false, false) => Dots::None,
        };
        if self.index.is_empty() || self.index.contains(['/', '\0']) || matches!(&self.index[..], "." | "..") {
            return Err(refused(format!("index {:?}: not a file name", self.index)));
        }
        if !self.prefix.is_empty() && (!self.prefix.starts_with('/') || self.prefix.ends_with('/')) {
            return Err(refused(format!("mounted at {:?}: must start with a slash and not end with one", self.prefix)));
        }
        for (option, name) in [("fallback", &self.fallback), ("not-found page", &self.not_found)] {
            if let Some(name) = name
                && !path::is_name(name, dots)
            {
                return Err(refused(format!("{option} {name:?}: not the path of a file beneath the directory")));
            }
        }
        if let Some(value) = self.refused {
            return Err(refused(format!("content type {value:?}: not a header value")));
        }
        let loader = Loader {
            root: Root::open_dir(&self.dir)?.follow_links_beneath(self.follow_links_beneath),
            generation: 0,
            index: self.index,
            precompressed: self.precompressed,
            only_compressed: self.only_compressed,
            content_types: Arc::new(self.content_types),
            cache_control: self.cache_control,
            policy: Policy {
                mapped: self.mapped,
                cached: self.cached.unwrap_or_else(|| memory::limit() / 4),
                tag: self.tag,
                budget: Arc::new(Budget::new(self.kept_bytes)),
            },
        };
        let dir = std::path::absolute(&self.dir)?;
        Ok(Files::of(FilesInner {
            store: Store::new(dir, loader, self.validate_every, self.capacity),
            dots,
            prefix: self.prefix,
            fallback: self.fallback,
            not_found: self.not_found,
            listing: self.listing.then(Arc::default),
        }))
    }
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
