//! The contents of a directory as a page or as JSON.
//!
//! ```text
//!  request ─▶ Order (?sort=, ?order=) ─▶ one job reads and sorts the names ─▶ body: head, rows by 256, tail
//!             Format (Accept)                                                      one job for each batch of rows
//! ```
//!
//! The names of a directory are in memory while it is read and sent, and count in [`Bounds`]; sizes and times are
//! looked up when their rows are written, unless the rows are sorted by them.

mod contents;
mod json;
mod page;

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, Uri};
use http_body::{Body, Frame};
use tokio::sync::Semaphore;

use self::contents::{Contents, Order};
use super::budget::{Budget, Share};
use super::path::Dots;
use crate::fs::Root;
use crate::runtime::blocking::BlockingTask;

/// Number of files that one job looks up.
const ROWS: usize = 256;
/// Maximum number of bytes of names in all listings of a service that are being read or sent.
const NAMES: u64 = 64 << 20;
/// Number of directories of a service that are read at once. Each takes a thread, and many at once would use up the
/// budget before one of them is complete.
const READINGS: usize = 4;

/// Bounds of all listings of a service.
#[derive(Debug)]
pub(super) struct Bounds {
    names: Arc<Budget>,
    readings: Arc<Semaphore>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { names: Arc::new(Budget::new(NAMES)), readings: Arc::new(Semaphore::new(READINGS)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Page,
    Json,
}

/// Returns the listing of the directory with the name `listed` in the form that the request asks for.
pub(super) async fn list(
    root: Root,
    listed: Vec<u8>,
    dots: Dots,
    bounds: &Bounds,
    uri: &Uri,
    headers: &HeaderMap,
) -> io::Result<Response<ListingBody>> {
    let (format, order) = (Format::of(headers), Order::of(uri.query().unwrap_or_default()));
    let title = String::from_utf8_lossy(&percent_encoding::percent_decode_str(uri.path()).collect::<Vec<_>>()).into();
    let reading = Arc::clone(&bounds.readings).acquire_owned().await.expect("internal: never closed");
    let mut share = Budget::take(&bounds.names, 0).expect("internal: no bytes");
    let job = move || {
        // Held until the job ends, even if the request is dropped before.
        let _reading = reading;
        let contents = Contents::read_blocking(&root, &listed, dots, order, &mut share)?;
        Ok(Listing { contents, title, format, _share: share })
    };
    // A slow reader holds the names in memory.
    let mut response = Response::new(ListingBody::new(BlockingTask::start(job)?.await?));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    fields.insert(VARY, HeaderValue::from_name(ACCEPT));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if format == Format::Page {
        fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    }
    Ok(response)
}

impl Format {
    /// JSON for clients that prefer it to HTML, [RFC 9110
    /// §12.5.1](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1).
    fn of(headers: &HeaderMap) -> Self {
        let (mut html, mut json) = (0.0f32, 0.0f32);
        for value in headers.get_all(ACCEPT) {
            for range in value.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next().unwrap_or_default().to_ascii_lowercase();
                let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
                let weight: f32 = weight.map_or(Some(1.0), |weight| weight.parse().ok()).unwrap_or(0.0);
                match &media[..] {
                    "application/json" => json = json.max(weight),
                    "text/html" | "text/*" | "*/*" => html = html.max(weight),
                    _ => {}
                }
            }
        }
        if json > html { Self::Json } else { Self::Page }
    }

    /// Number of bytes before a row that separate it from the row before.
    fn separator(self) -> usize {
        match self {
            Self::Page => 0,
            Self::Json => 1,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

/// A directory and the form in which it is sent.
#[derive(Debug)]
struct Listing {
    contents: Contents,
    /// Path of the request, decoded, for people to read.
    title: String,
    format: Format,
    _share: Share,
}

impl Listing {
    fn head(&self) -> Bytes {
        match self.format {
            Format::Page => page::head(&self.contents, &self.title),
            Format::Json => json::head(&self.contents, &self.title),
        }
        .into()
    }

    fn tail(&self) -> Bytes {
        match self.format {
            Format::Page => page::tail(&self.contents),
            Format::Json => json::tail(),
        }
        .into()
    }

    /// Writes the rows of some items.
    fn rows_blocking(&self, items: Range<usize>) -> Bytes {
        let mut rows = String::with_capacity(items.len() * 128);
        for item in items.map(|index| self.contents.item(index)) {
            let Some(facts) = self.contents.facts_blocking(item) else { continue };
            let name = self.contents.name(item);
            match self.format {
                Format::Page => page::row(&mut rows, name, item.is_directory, facts),
                Format::Json => json::row(&mut rows, name, item.is_directory, facts),
            }
        }
        rows.into()
    }
}

/// A response body that lists a directory. Its length is not known before its end.
#[derive(Debug)]
pub(super) struct ListingBody {
    listing: Arc<Listing>,
    /// Number of items whose rows were written, or are being written by `job`.
    written: usize,
    job: Option<BlockingTask<Bytes>>,
    /// Whether a row was sent.
    begun: bool,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Rows,
    Done,
}

impl ListingBody {
    fn new(listing: Listing) -> Self {
        Self { listing: Arc::new(listing), written: 0, job: None, begun: false, part: Part::Head }
    }

    fn poll_rows(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            if let Some(job) = &mut self.job {
                let rows = ready!(Pin::new(job).poll(cx));
                self.job = None;
                match rows {
                    Ok(rows) if rows.is_empty() => {}
                    Ok(mut rows) => {
                        if !std::mem::replace(&mut self.begun, true) {
                            rows.advance(self.listing.format.separator());
                        }
                        return Poll::Ready(Ok(rows));
                    }
                    failed => return Poll::Ready(failed),
                }
            }
            let items = self.written..self.listing.contents.len().min(self.written + ROWS);
            if items.is_empty() {
                self.part = Part::Done;
                return Poll::Ready(Ok(self.listing.tail()));
            }
            self.written = items.end;
            let listing = Arc::clone(&self.listing);
            self.job = Some(BlockingTask::start(move || Ok(listing.rows_blocking(items)))?);
        }
    }
}

impl Body for ListingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let bytes = match this.part {
            Part::Head => {
                this.part = Part::Rows;
                Ok(this.listing.head())
            }
            Part::Rows => ready!(this.poll_rows(cx)),
            Part::Done => return Poll::Ready(None),
        };
        if bytes.is_err() {
            this.part = Part::Done;
        }
        Poll::Ready(Some(bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.part == Part::Done
    }
}

#[cfg(test)]
mod tests;
