//! Saves a body into a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;

#[cfg(feature = "digest")]
use http::HeaderMap;
use http_body::Body;

#[cfg_attr(not(feature = "digest"), path = "save/no_digest.rs")]
mod digest;
mod error;
mod pieces;

use digest::Wanted;
use error::Cause;
pub use error::SaveError;
use pieces::{Failed, Pieces};

use crate::fs::receive::{SinkMode, Stopped};
use crate::fs::{Durability, Preserve, Replace};

/// Saves a body into a file, which is created or replaced: [`Save`] with its defaults.
///
/// After `Ok` the file survives a power cut. Readers find either the complete old file or the complete new one. A body
/// that fails, or whose future is dropped, leaves the old file and nothing else.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), millstream::body::SaveError> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("upload");
/// # let body = http_body_util::Full::new(bytes::Bytes::from("some bytes"));
/// let saved = millstream::body::save(body, &path).await?;
/// assert_eq!(saved.len, 10);
/// # assert_eq!(std::fs::read(&path).unwrap(), b"some bytes");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// See [`Save::run`].
pub async fn save<B>(body: B, path: impl AsRef<Path>) -> Result<Saved, SaveError>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    Save::new(path).run(body).await
}

/// Options for saving a body into a file.
///
/// The bytes are written to an unnamed file in the same directory. The file is then synced and renamed over the old
/// one, as by [`Replace`]; [`continue_at`](Self::continue_at) appends to a file instead. A body of up to 448 KiB takes
/// one job on the blocking pool; a longer one takes one for every 448 KiB, and the next bytes are received meanwhile.
///
/// # Memory
///
/// While 448 KiB are gathered, or 1 MiB is gathered or being written, the body is not polled, so HTTP stops the client.
/// With frames of up to 64 KiB, which [`server`](crate::server) has by default, a save holds at most 1 MiB. Frames of
/// 16 KiB or more are kept without a copy. A slow client occupies no thread.
///
/// # Disk space
///
/// If the length of the body is known and does not fit one job, the space is allocated before the body is polled. A
/// full disk then fails at once, and a client that has sent `Expect: 100-continue` sends nothing. The space stays
/// allocated for as long as the body takes, so set [`max_len`](Self::max_len) for clients that you do not trust.
#[must_use = "nothing is saved until `run`"]
pub struct Save {
    path: PathBuf,
    file: Replace,
    place: SinkMode,
    max_len: u64,
    wanted: Wanted,
    on_progress: Option<OnProgress>,
}

type OnProgress = Box<dyn FnMut(u64, Option<u64>) + Send>;

/// Result of [`Save::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The path as given by the caller.
    pub path: PathBuf,
    /// Number of bytes of the body.
    pub len: u64,
    /// Number of bytes of the file: more than `len` only if the file was [continued](Save::continue_at).
    pub file_len: u64,
    /// The SHA-256 of the body, if [`Save::sha256`] was set.
    #[cfg(feature = "digest")]
    pub sha256: Option<[u8; 32]>,
    /// The CRC-32C of the body, if [`Save::crc32c`] was set.
    #[cfg(feature = "digest")]
    pub crc32c: Option<u32>,
    /// Whether [`Save::verify`] has checked the body against a digest field of the message.
    #[cfg(feature = "digest")]
    pub verified: bool,
}

#[cfg(feature = "digest")]
impl Saved {
    /// Returns [`sha256`](Self::sha256) in 64 hexadecimal digits, as `sha256sum` prints it.
    pub fn sha256_hex(&self) -> Option<String> {
        self.sha256.map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Save {
    /// Saves to the file at `path`. Its directory must exist, and this process must be allowed to read and write it.
    /// Never build the path from text of a client without checking it.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            file: Replace::new(path),
            place: SinkMode::default(),
            max_len: u64::MAX,
            wanted: Wanted::default(),
            on_progress: None,
        }
    }

    /// Sets the guarantee about power cuts. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.file = self.file.durability(durability);
        self
    }

    /// Sets whether a symbolic link at the path is followed. Refused by default.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.file = self.file.follow_link(follow);
        self
    }

    /// Sets the metadata that a new file takes over from the one it replaces. [`Preserve::All`] by default.
    pub fn keep(mut self, keep: Preserve) -> Self {
        self.file = self.file.keep(keep);
        self
    }

    /// Sets the exact permission bits of a new file, such as `0o640`: see [`Replace::mode`].
    pub fn mode(mut self, mode: u32) -> Self {
        self.file = self.file.mode(mode);
        self
    }

    /// Fails if the file exists, instead of replacing it. This is checked before the body is polled, if its length is
    /// known and more than 448 KiB, and again by the step that gives the file its name: of several saves at the same
    /// time, one succeeds.
    pub fn create_new(mut self) -> Self {
        self.place = SinkMode::New;
        self
    }

    /// Appends to the file at the path instead of replacing it. The length of the file must be `offset`; 0 creates a
    /// missing file. Use it for resumable uploads; the caller implements the protocol.
    ///
    /// Bytes that have arrived **stay** if the body fails, and [`SaveError::file_len`] returns where to continue. If the
    /// future is dropped, the last bytes that arrived may be missing: ask the file for its length. A digest mismatch
    /// removes what this save has written.
    ///
    /// The file is locked with [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html), so that of two saves at
    /// the same time the later one fails.
    pub fn continue_at(mut self, offset: u64) -> Self {
        self.place = SinkMode::End(offset);
        self
    }

    /// Sets the maximum length of the file in bytes. A body whose length is known is refused before it is polled. No
    /// limit by default, but the body may have one: see [`Limits::body`](crate::server).
    pub fn max_len(mut self, bytes: u64) -> Self {
        self.max_len = bytes;
        self
    }

    /// Calls `tell` with the number of bytes of the body that were written, and with the length of the body if it is
    /// known: after each job, and at the end.
    pub fn on_progress(mut self, tell: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }

    /// Computes the SHA-256 of the body, in the jobs that write it.
    #[cfg(feature = "digest")]
    pub fn sha256(mut self) -> Self {
        self.wanted.sha256 = true;
        self
    }

    /// Computes the CRC-32C (Castagnoli) of the body, in the jobs that write it.
    #[cfg(feature = "digest")]
    pub fn crc32c(mut self) -> Self {
        self.wanted.crc32c = true;
        self
    }

    /// Checks the body against the digests in the header fields of its message, and in its trailer section.
    ///
    /// | field | |
    /// |---|---|
    /// | `Content-Digest` | `sha-256`; other algorithms are not checked ([RFC 9530](https://www.rfc-editor.org/rfc/rfc9530)) |
    /// | `Repr-Digest` | the same, unless the body is a part: with `Content-Range` or [`continue_at`](Self::continue_at) |
    /// | `Content-MD5` | in the trailer section only if `Trailer` announces it |
    ///
    /// A message without such fields is accepted, unless [`require_digest`](Self::require_digest) is set;
    /// [`Saved::verified`] reports this. The digests apply to the bytes that were sent, so save the body before a layer
    /// decodes it.
    #[cfg(feature = "digest")]
    pub fn verify(mut self, headers: &HeaderMap) -> Self {
        self.wanted.verify(headers);
        self
    }

    /// Fails if no digest was verified, because the message has none that [`verify`](Self::verify) checks, or `verify`
    /// was not called: [`SaveError::is_no_digest`]. The body is received first, because a digest may be in its
    /// trailers.
    #[cfg(feature = "digest")]
    pub fn require_digest(mut self) -> Self {
        self.wanted.required = true;
        self
    }

    /// Saves `body`.
    ///
    /// # Errors
    ///
    /// [`SaveError`] distinguishes the causes. After an error the old file, or no file, is in place, and no other file
    /// remains; [`continue_at`](Self::continue_at) is an exception. The body is dropped, and not read to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes what was written, without waiting for it, and leaves the old file. If the last job
    /// has begun, the new file may still get its name.
    pub async fn run<B>(self, body: B) -> Result<Saved, SaveError>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let Self { path, file, place, max_len, wanted, mut on_progress } = self;
        let start = match place {
            SinkMode::End(offset) => Some(offset),
            SinkMode::Replace | SinkMode::New => None,
        };
        let offset = start.unwrap_or_default();
        let (known, least) = (body.size_hint().exact(), body.size_hint().lower());
        let failed = |cause| SaveError::new(&path, None, cause);
        if offset.checked_add(least).is_none_or(|len| len > max_len) {
            return Err(failed(Cause::too_large(max_len)));
        }
        let digests = wanted.start(start.is_none()).map_err(failed)?;
        let mut receiver = file.receiver(place, known.unwrap_or_default(), digests);
        let not_written = |e| SaveError::file(&path, start, e);
        receiver.open().await.map_err(not_written)?;

        let mut pieces = pin!(Pieces::new(body, max_len - offset));
        let mut tell = |written| {
            if let Some(tell) = &mut on_progress {
                tell(written, known);
            }
        };
        let last = match receiver.pump(pieces.as_mut(), &mut tell).await {
            Ok(last) => last,
            Err(Stopped::File(e)) => return Err(not_written(e)),
            Err(Stopped::Stream(failed, last)) => {
                let written = receiver.stop(last).await.map_err(not_written)?;
                let cause = match failed {
                    Failed::TooLarge => Cause::too_large(max_len),
                    Failed::Body(e) => Cause::Body(e),
                };
                return Err(SaveError::new(&path, start.map(|start| start + written), cause));
            }
        };
        let (trailers, was_told) = (pieces.as_mut().take_trailers(), last.is_empty());
        let found = receiver.finish(last, move |digests| digests.check(&trailers)).await;
        let (len, _found) = found.map_err(|cause| match cause {
            Cause::File(e) => not_written(e),
            cause => SaveError::new(&path, start, cause),
        })?;
        if !was_told || len == 0 {
            tell(len);
        }
        Ok(Saved {
            path,
            len,
            file_len: offset + len,
            #[cfg(feature = "digest")]
            sha256: _found.sha256,
            #[cfg(feature = "digest")]
            crc32c: _found.crc32c,
            #[cfg(feature = "digest")]
            verified: _found.verified,
        })
    }
}

impl fmt::Debug for Save {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Save")
            .field("file", &self.file)
            .field("place", &self.place)
            .field("max_len", &self.max_len)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}
