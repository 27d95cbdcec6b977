//! The file service.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tower_service::Service;

use super::absent::{is_absent, is_missing};
use super::body::FilesBody;
use super::cache::Store;
use super::listing;
use super::loader::Loaded;
use super::path::Dots;
use super::{path, respond};

/// A service for the files of a directory, with ranges, conditional requests and precompressed variants. It serves
/// nothing outside of the directory.
///
/// Use it as a [`tower_service::Service`] (axum's `nest_service` and `fallback_service`), or call [`get`](Self::get)
/// from a handler. Clones are cheap and share the cache of open files.
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
/// Responses follow [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110):
///
/// | status | when |
/// |---|---|
/// | 200, 206 | the file, with a strong `ETag`; one range or, up to 16, several; a listing; a fallback |
/// | 304, 412 | by `If-None-Match`, `If-Modified-Since`, `If-Match`, `If-Unmodified-Since` |
/// | 307 | a directory without its slash, to the same path with one; the reference is relative |
/// | 404 | no file, or one that is not served: links, hidden names, paths that lead out, FIFOs, devices |
/// | 406 | only compressed variants exist, and the client accepts none of them |
/// | 405 | methods other than `GET` and `HEAD` |
/// | 416 | no range lies within the file |
/// | 503, 500 | this process or the machine is out of descriptors; other errors of the file system |
///
/// Empty segments of a path and `.` segments are skipped, as in tower-http's `ServeDir`. A path with `..` gets 404.
///
/// # Safety contract
///
/// Bodies may be slices of mapped files. Unless [`FilesBuilder::mapped`](super::FilesBuilder::mapped) is off, nothing
/// may write to the files in place or truncate them while they are served: see
/// [`FileBody`](crate::body::FileBody#safety-contract).
///
/// # Changes
///
/// Files are kept open and validated after [`FilesBuilder::validate_every`](super::FilesBuilder::validate_every).
/// Replace them by renaming: each response is then all of the old file or all of the new one. Truncating a file in
/// place fails the responses in progress, and a file that is written in place is sent as it is at that moment.
///
/// # Deployments
///
/// When the path leads to another directory, because a symbolic link was switched (`ln -s release-2 new && mv -T new
/// current`) or the directory was replaced, requests get the files of the new directory from the next validation on,
/// and no later request gets a file of the old one. Responses in progress end with the old files.
/// [`reopen`](Self::reopen) switches at once. While the path leads to no directory, the last directory is served.
///
/// # Entity tags
///
/// A tag is made of the length of a file, its `mtime` and `ctime`, and the content coding if the file is precompressed.
/// The `ctime` differs between machines: see [`FilesBuilder::ctime_in_tags`](super::FilesBuilder::ctime_in_tags) for a
/// fleet.
///
/// A layer that changes the bytes must change the tag. tower-http's `CompressionLayer` compresses bodies and keeps the
/// strong tag of the file, which then identifies two different representations: a client that resumes a download by
/// `If-Range`, or a cache, may combine parts of both. Serve precompressed files, or use `middleware::CompressLayer`
/// (feature `compress`), which makes the tag weak and leaves precompressed files alone.
///
/// # Blocking
///
/// On network file systems the validation of a file or of the directory's path (once per `validate_every`) may block a
/// runtime thread on the server. On local file systems nothing blocks.
#[derive(Clone)]
pub struct Files(Arc<FilesInner>);

pub(super) struct FilesInner {
    pub(super) store: Store,
    pub(super) dots: Dots,
    pub(super) prefix: String,
    /// Name of the file that is sent for absent pages.
    pub(super) fallback: Option<String>,
    /// Name of the page for status 404.
    pub(super) not_found: Option<String>,
    /// `None` if directories are not listed.
    pub(super) listing: Option<Arc<listing::Bounds>>,
}

// Compile-time check of the bounds that axum and hyper require of a service.
const _: () = {
    const fn service<S: Service<Request<()>> + Clone + Send + Sync + 'static>() {}
    service::<Files>();
    const fn future<F: Future + Send + Unpin + 'static>() {}
    future::<FilesFuture>();
    future::<ResponseFuture>();
};

impl Files {
    /// Opens the directory at the path now, and validates every file again, without waiting for
    /// [`FilesBuilder::validate_every`](super::FilesBuilder::validate_every). This applies to all clones. Responses in
    /// progress end with the old files. Blocks shortly on the disk: on a network file system, call it on the blocking
    /// pool.
    ///
    /// # Errors
    ///
    /// Fails if the path does not lead to a directory that this process may search. The previous directory is then
    /// still served.
    pub fn reopen(&self) -> io::Result<()> {
        self.0.store.reopen()
    }

    pub(super) fn of(inner: FilesInner) -> Self {
        Self(Arc::new(inner))
    }

    /// Returns the response to a request for the path of `uri` beneath the directory, under the [safety
    /// contract](Self#safety-contract): statuses, ranges and conditional requests as in the table of [`Files`]. The
    /// first poll answers for a cached, valid file.
    ///
    /// A handler calls it after its own checks. `uri` need not be that of the request. A handler that makes it from a
    /// value that it has checked is safe from a path that has two spellings, such as `/./7.pdf`:
    ///
    /// ```
    /// use axum::Router;
    /// use axum::extract::{Path, State};
    /// use axum::http::{HeaderMap, Method, StatusCode, Uri};
    /// use axum::response::Response;
    /// use axum::routing::get;
    /// use millstream::files::{Files, FilesBody};
    ///
    /// async fn invoice(
    ///     State(files): State<Files>,
    ///     Path(number): Path<u64>,
    ///     method: Method,
    ///     headers: HeaderMap,
    /// ) -> Result<Response<FilesBody>, StatusCode> {
    ///     if !may_read(&headers, number) {
    ///         return Err(StatusCode::FORBIDDEN);
    ///     }
    ///     let uri: Uri = format!("/{number}.pdf").parse().expect("a path of digits");
    ///     Ok(files.get(&method, &uri, &headers).await)
    /// }
    /// # fn may_read(headers: &HeaderMap, _: u64) -> bool { headers.contains_key("authorization") }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let invoices = dir.path();
    /// # std::fs::write(invoices.join("7.pdf"), "seven")?;
    /// let app = Router::new().route("/invoices/{number}", get(invoice)).with_state(Files::new(invoices)?);
    /// # for (authorized, status, part) in [(true, 206, &b"ve"[..]), (false, 403, b"")] {
    /// #     let request = axum::http::Request::get("/invoices/7").header("range", "bytes=2-3");
    /// #     let request = if authorized { request.header("authorization", "Bearer x") } else { request };
    /// #     let request = request.body(axum::body::Body::empty()).unwrap();
    /// #     let response = tower::ServiceExt::oneshot(app.clone(), request).await.unwrap();
    /// #     assert_eq!(response.status(), status);
    /// #     assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), part);
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future borrows nothing. Dropping it does not affect other requests for the same file.
    pub fn get(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> impl Future<Output = Response<FilesBody>> + Send + Unpin + use<> {
        self.answer(method, uri, headers)
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> FilesFuture {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return FilesFuture::ready(respond::method_not_allowed());
        }
        let Some(path) = uri.path().strip_prefix(&self.0.prefix[..]) else {
            return self.later(None, method, uri, headers);
        };
        if path.is_empty() {
            return FilesFuture::ready(respond::to_directory(uri));
        }
        let store = &self.0.store;
        let now = store.now();
        store.follow(now);
        // Names are decoded, so an encoded path could be the name of another file.
        if !path.as_bytes().contains(&b'%')
            && let Some(name) = path.strip_prefix('/')
            && let Some(entry) = store.fresh(name.as_bytes(), now)
        {
            return FilesFuture::ready(respond::from_entry(&entry, method, headers));
        }
        let Some(name) = path::name(path, self.0.dots) else { return self.later(None, method, uri, headers) };
        if let Cow::Owned(name) = &name
            && let Some(entry) = store.fresh(name, now)
        {
            return FilesFuture::ready(respond::from_entry(&entry, method, headers));
        }
        self.later(Some(name), method, uri, headers)
    }

    /// Returns the response for a name that is not in the cache, or for a path that is not the name of a file.
    fn later(&self, name: Option<Cow<'_, [u8]>>, method: &Method, uri: &Uri, headers: &HeaderMap) -> FilesFuture {
        if name.is_none() && self.0.not_found.is_none() {
            return FilesFuture::ready(respond::plain(StatusCode::NOT_FOUND));
        }
        let (this, name) = (self.clone(), name.map(Cow::into_owned));
        let (method, uri, headers) = (method.clone(), uri.clone(), headers.clone());
        FilesFuture(Answer::Later(Box::pin(async move {
            let found = match &name {
                Some(name) => this.0.find(name, &method, &uri, &headers).await,
                None => Err(io::ErrorKind::NotFound.into()),
            };
            match found {
                Ok(response) => response,
                Err(e) => this.0.failed(&e, name.as_deref(), &method, &headers).await,
            }
        })))
    }
}

impl FilesInner {
    async fn find(
        &self,
        name: &[u8],
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> io::Result<Response<FilesBody>> {
        let error = match self.store.load(name).await {
            Ok(Loaded::Entry(entry)) => return Ok(respond::from_entry(&entry, method, headers)),
            Ok(Loaded::Directory) => return Ok(respond::to_directory(uri)),
            Err(e) => e,
        };
        let Some(bounds) = self.listing.as_ref().filter(|_| path::is_directory(name) && is_missing(&error)) else {
            return Err(error);
        };
        let root = self.store.loader().root.clone();
        let listing = listing::list(root, name.to_owned(), self.dots, bounds, uri, headers).await?;
        let listing = listing.map(FilesBody::listing);
        Ok(if *method == Method::GET { listing } else { respond::without_body(listing) })
    }

    /// Returns the response for a file that cannot be sent: the fallback if there is no such name, or the page for
    /// status 404 if the client must not learn the reason.
    async fn failed(
        &self,
        error: &io::Error,
        name: Option<&[u8]>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Response<FilesBody> {
        if let (Some(fallback), Some(name)) = (&self.fallback, name)
            && is_missing(error)
            && self.is_page(name)
        {
            match self.store.current(fallback.as_bytes()).await {
                Ok(Loaded::Entry(entry)) => return respond::from_entry(&entry, method, headers),
                // Without the fallback itself, the page is absent.
                Ok(Loaded::Directory) => {}
                Err(e) if is_absent(&e) => {}
                Err(e) => return respond::from_error(&e),
            }
        }
        if let Some(page) = &self.not_found
            && is_absent(error)
            && let Ok(Loaded::Entry(entry)) = self.store.current(page.as_bytes()).await
        {
            return respond::not_found_page(&entry, method, headers);
        }
        respond::from_error(error)
    }

    /// Returns whether an absent name may be that of a page of the application.
    fn is_page(&self, name: &[u8]) -> bool {
        let is_well_known = name.split(|&b| b == b'/').next() == Some(b".well-known");
        let path = path::as_path(name);
        !is_well_known && !self.store.loader().content_types.is_subresource(path)
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("store", &self.0.store).field("dots", &self.0.dots).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Files {
    type Response = Response<FilesBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        ResponseFuture(self.answer(request.method(), request.uri(), request.headers()))
    }
}

/// The future of [`Files::get`].
#[must_use = "futures do nothing unless polled"]
struct FilesFuture(Answer);

/// The future of [`Files`] as a service.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(FilesFuture);

enum Answer {
    Ready(Response<FilesBody>),
    Later(Pin<Box<dyn Future<Output = Response<FilesBody>> + Send>>),
    Taken,
}

impl FilesFuture {
    fn ready(response: Response<FilesBody>) -> Self {
        Self(Answer::Ready(response))
    }
}

impl Future for FilesFuture {
    type Output = Response<FilesBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Answer::Later(future) = &mut self.0 {
            return future.as_mut().poll(cx);
        }
        match std::mem::replace(&mut self.0, Answer::Taken) {
            Answer::Ready(response) => Poll::Ready(response),
            Answer::Later(_) | Answer::Taken => panic!("`FilesFuture` polled after completion"),
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<FilesBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Ok)
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
