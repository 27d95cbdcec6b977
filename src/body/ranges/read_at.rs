//! The source of ranges.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderValue;

/// Something that has a length and can be read at an offset: an object in a store, a record in a database, memory.
///
/// ```
/// use std::io;
///
/// use bytes::Bytes;
/// use http::HeaderValue;
/// use millstream::body::ReadAt;
///
/// struct Text(&'static str);
///
/// impl ReadAt for Text {
///     fn len(&self) -> u64 {
///         self.0.len() as u64
///     }
///
///     async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
///         Ok(Bytes::from_static(&self.0.as_bytes()[offset as usize..][..len]))
///     }
///
///     fn etag(&self) -> Option<HeaderValue> {
///         Some(HeaderValue::from_static("\"version 1\""))
///     }
/// }
/// ```
#[expect(clippy::len_without_is_empty, reason = "not a collection")]
pub trait ReadAt: Send + Sync + 'static {
    /// Returns the length in bytes, which must not change.
    fn len(&self) -> u64;

    /// Reads `len` bytes from `offset`. The range lies within the length. The read may return fewer bytes: the rest is
    /// then read by another call. Several reads may be in progress at the same time, and reads are dropped if the
    /// client leaves.
    ///
    /// # Errors
    ///
    /// An error fails the body, and the client sees that bytes are missing. No bytes count as
    /// `ErrorKind::UnexpectedEof`.
    fn read_at(&self, offset: u64, len: usize) -> impl Future<Output = io::Result<Bytes>> + Send;

    /// Returns the entity tag with its quotes, such as `"v1"` or `W/"v1"`
    /// ([RFC 9110 §8.8.3](https://www.rfc-editor.org/rfc/rfc9110#section-8.8.3)). A value of another form is not used.
    /// The bytes must not change while a strong tag stays the same. None by default.
    fn etag(&self) -> Option<HeaderValue> {
        None
    }

    /// Returns the time of the last change. None by default.
    fn last_modified(&self) -> Option<SystemTime> {
        None
    }

    /// Returns the media type. `application/octet-stream` by default.
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/octet-stream")
    }
}

impl<T: ReadAt> ReadAt for Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, len: usize) -> impl Future<Output = io::Result<Bytes>> + Send {
        (**self).read_at(offset, len)
    }

    fn etag(&self) -> Option<HeaderValue> {
        (**self).etag()
    }

    fn last_modified(&self) -> Option<SystemTime> {
        (**self).last_modified()
    }

    fn content_type(&self) -> HeaderValue {
        (**self).content_type()
    }
}
