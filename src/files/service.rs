//! The service: requests in, responses out.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tower_service::Service;

use super::cache::Store;
use super::entry::Loaded;
use super::{FilesBuilder, path, respond};
use crate::body::FileBody;

/// A directory as a service: ranges, conditional requests, precompressed variants, and nothing outside of it.
///
/// Use it wherever a [`tower_service::Service`] is taken (axum's `nest_service` and `fallback_service`), or call
/// [`get`](Self::get) from a handler. Cloning is cheap and shares the cache of open files.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let public = dir.path();
/// use millstream::files::Files;
/// use std::time::Duration;
///
/// let files = Files::builder(public).validate_every(Duration::from_secs(5)).build()?;
/// # drop(files);
/// # Ok(())
/// # }
/// ```
///
/// What clients get, by [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110):
///
/// | status | when |
/// |---|---|
/// | 200, 206 | the file, with a strong `ETag`; one range or, up to 16, several |
/// | 304, 412 | by `If-None-Match`, `If-Modified-Since`, `If-Match`, `If-Unmodified-Since` |
/// | 307 | a directory without its slash, to the same place with one; the reference is relative |
/// | 404 | nothing there, or nothing that may be served: links, hidden names, ways out, FIFOs, devices |
/// | 405 | methods other than `GET` and `HEAD` |
/// | 416 | no range lies within the file |
/// | 503, 500 | this process or the machine is out of descriptors; other errors of the file system |
///
/// Empty segments of a path and segments that are `.` are passed over, as tower-http's `ServeDir` does: `//a`, `/a//b` and
/// `/./a` are served. A path with `..` leads nowhere.
///
/// # Safety contract
///
/// Bodies may be slices of mapped files. Unless [`FilesBuilder::mapped`] is off, nothing may write to the files in place or
/// truncate them while they are served: see [`FileBody`](FileBody#safety-contract).
///
/// # Changes
///
/// Files are kept open and believed for as long as [`FilesBuilder::validate_every`] says. Replace them by renaming: then
/// each response is all of the old file or all of the new one. A file that is truncated in place fails the responses
/// that are under way, and one that is written to in place is sent as it is at that moment.
///
/// # Deployments
///
/// The path of the directory is followed. When it leads to another directory, because a symbolic link was switched
/// (`ln -s release-2 new && mv -T new current`) or the directory was replaced, requests get the files of the new one from
/// the next validation on, and no request gets a file of the old one after that. Responses that have begun end with the
/// old files. [`reopen`](Self::reopen) does it at once. While the path leads nowhere or to something that is not a
/// directory, the last directory is served on.
///
/// # Entity tags
///
/// A tag is made of the length of a file, its `mtime` and its `ctime`, and of the name of the content coding where the
/// file is precompressed. Two machines never have the same `ctime`: see [`FilesBuilder::ctime_in_tags`] for a fleet.
///
/// A layer that changes the bytes has to change the tag. tower-http's `CompressionLayer` compresses bodies and keeps the
/// strong tag of the file, which then stands for two different representations: a client that resumes a download by
/// `If-Range`, or a cache, may put parts of both together. Serve precompressed files instead of compressing `Files`, keep
/// the layer off these routes, or make the tag weak (`W/`) wherever the layer has added `Content-Encoding`.
///
/// On network file systems, looking at a file or at the path of the directory again (once per `validate_every`) may wait
/// for the server on a runtime thread; on local ones nothing does.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    store: Store,
    hidden: bool,
    prefix: String,
}

// What axum and hyper ask of a service; the compiler says here, not at the user, when it is lost.
const _: () = {
    const fn service<S: Service<Request<()>> + Clone + Send + Sync + 'static>() {}
    service::<Files>();
    const fn future<F: Future + Send + Unpin + 'static>() {}
    future::<FilesFuture>();
};

impl Files {
    /// Serves a directory with the settings of [`FilesBuilder`] as they are, among them that files are
    /// [mapped](FilesBuilder::mapped), with its [contract](Self#safety-contract).
    ///
    /// # Errors
    ///
    /// As [`FilesBuilder::build`].
    pub fn new(dir: impl AsRef<Path>) -> io::Result<Self> {
        Self::builder(dir).build()
    }

    /// Serves a directory with other settings.
    pub fn builder(dir: impl AsRef<Path>) -> FilesBuilder {
        FilesBuilder::new(dir.as_ref())
    }

    /// Opens what the path of the directory leads to now, and looks at every file anew: for a deployment that does not want
    /// to wait for [`FilesBuilder::validate_every`]. All clones follow. Responses that have begun end with the files they
    /// began with. This waits for the disk, shortly: on a network file system, call it on the blocking pool.
    ///
    /// # Errors
    ///
    /// The path does not lead to a directory that this process may search. What was served before is served on.
    pub fn reopen(&self) -> io::Result<()> {
        self.0.store.reopen()
    }

    pub(super) fn of(store: Store, hidden: bool, prefix: String) -> Self {
        Self(Arc::new(Inner { store, hidden, prefix }))
    }

    /// Answers a request. The path of `uri` is taken beneath the directory; the future borrows nothing. The body may be
    /// mapped, with its [contract](Self#safety-contract).
    ///
    /// What is cached and valid is answered by the first poll.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the request; others that wait for the same file carry on.
    pub fn get(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> FilesFuture {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return FilesFuture::ready(respond::method_not_allowed());
        }
        let Some(path) = uri.path().strip_prefix(&self.0.prefix[..]) else {
            return FilesFuture::ready(respond::plain(StatusCode::NOT_FOUND));
        };
        if path.is_empty() {
            // The directory itself, without its slash.
            return FilesFuture::ready(respond::to_directory(uri));
        }
        let store = &self.0.store;
        let now = store.now();
        store.follow(now);
        // A name is decoded: what is encoded could be the name of another file.
        if !path.as_bytes().contains(&b'%')
            && let Some(name) = path.strip_prefix('/')
            && let Some(entry) = store.fresh(name.as_bytes(), now)
        {
            return FilesFuture::ready(respond::from_entry(&entry, method, headers));
        }
        let Some(name) = path::name(path, self.0.hidden) else {
            return FilesFuture::ready(respond::plain(StatusCode::NOT_FOUND));
        };
        // Spelled in another way than the name is.
        if let Cow::Owned(name) = &name
            && let Some(entry) = store.fresh(name, now)
        {
            return FilesFuture::ready(respond::from_entry(&entry, method, headers));
        }
        self.load(name, method, uri, headers)
    }

    fn load(&self, name: Cow<'_, [u8]>, method: &Method, uri: &Uri, headers: &HeaderMap) -> FilesFuture {
        let (this, name) = (self.clone(), name.into_owned());
        let (method, uri, headers) = (method.clone(), uri.clone(), headers.clone());
        FilesFuture(Answer::Later(Box::pin(async move {
            match this.0.store.load(&name).await {
                Ok(Loaded::Entry(entry)) => respond::from_entry(&entry, &method, &headers),
                Ok(Loaded::Directory) => respond::to_directory(&uri),
                Err(e) => respond::from_error(&e),
            }
        })))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("store", &self.0.store).field("hidden", &self.0.hidden).finish()
    }
}

impl<B> Service<Request<B>> for Files {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = FilesFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> FilesFuture {
        self.get(request.method(), request.uri(), request.headers())
    }
}

/// The future of a response from [`Files`]; it never fails.
#[must_use = "futures do nothing unless polled"]
pub struct FilesFuture(Answer);

enum Answer {
    Ready(Response<FileBody>),
    Later(Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>),
    Taken,
}

impl FilesFuture {
    fn ready(response: Response<FileBody>) -> Self {
        Self(Answer::Ready(response))
    }
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Answer::Later(future) = &mut self.0 {
            return future.as_mut().poll(cx).map(Ok);
        }
        match std::mem::replace(&mut self.0, Answer::Taken) {
            Answer::Ready(response) => Poll::Ready(Ok(response)),
            Answer::Later(_) | Answer::Taken => panic!("polled after it was ready"),
        }
    }
}

impl fmt::Debug for FilesFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.0 {
            Answer::Ready(_) => "Ready",
            Answer::Later(_) => "Later",
            Answer::Taken => "Taken",
        };
        f.debug_tuple("FilesFuture").field(&state).finish()
    }
}
