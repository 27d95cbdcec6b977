//! Test helpers for wrappers between hyper and a stream.
//!
//! hyper checks once, when it sets up a connection, whether the stream supports vectored writes. If not, it copies the
//! body of every response into one buffer, and the stream can no longer recognise bytes of a file that it could have
//! sent without reading them. Nothing fails and nothing is logged.
//!
//! A wrapper (a byte counter, a rate limit, a timeout) disables vectored writes by accident: `is_write_vectored` and
//! `poll_write_vectored` have default implementations, so a wrapper without them compiles. One line in the tests of the
//! wrapper detects it:
//!
//! ```
//! # use std::{io, pin::Pin, task::{Context, Poll}};
//! # use tokio::io::AsyncWrite;
//! # struct Counted<T> { inner: T, bytes: usize }
//! # impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
//! #     fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
//! #         Pin::new(&mut self.inner).poll_write(cx, b)
//! #     }
//! #     fn poll_write_vectored(
//! #         mut self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[io::IoSlice<'_>],
//! #     ) -> Poll<io::Result<usize>> {
//! #         Pin::new(&mut self.inner).poll_write_vectored(cx, b)
//! #     }
//! #     fn is_write_vectored(&self) -> bool { self.inner.is_write_vectored() }
//! #     fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
//! #         Pin::new(&mut self.inner).poll_flush(cx)
//! #     }
//! #     fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
//! #         Pin::new(&mut self.inner).poll_shutdown(cx)
//! #     }
//! # }
//! use millstream::testing::{Recorder, assert_vectored};
//!
//! assert_vectored(|inner: Recorder| Counted { inner, bytes: 0 });
//! ```

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const BODY: &[u8] = b"a body that must not be copied";

/// A stream that accepts every write whole, supports vectored writes, and records the calls.
///
/// Reading returns the end of the stream. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    calls: Arc<Mutex<Vec<Call>>>,
}

/// A call that reached a [`Recorder`].
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// A write of one piece.
    Write(Vec<u8>),
    /// A write of several pieces.
    WriteVectored(Vec<Vec<u8>>),
    /// A call of `poll_flush`.
    Flush,
    /// A call of `poll_shutdown`.
    Shutdown,
}

impl Recorder {
    /// Returns the calls so far, in order.
    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    fn write(&self, piece: &[u8]) -> Poll<io::Result<usize>> {
        self.note(Call::Write(piece.to_vec()));
        Poll::Ready(Ok(piece.len()))
    }

    fn write_vectored(&self, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.note(Call::WriteVectored(pieces.iter().map(|piece| piece.to_vec()).collect()));
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    fn done(&self, call: Call) -> Poll<io::Result<()>> {
        self.note(call);
        Poll::Ready(Ok(()))
    }
}

/// The methods of tokio's and of hyper's traits are the same.
macro_rules! records {
    ($read:path, $buf:ty, $write:path) => {
        impl $read for Recorder {
            fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: $buf) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }

        impl $write for Recorder {
            fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
                self.write(piece)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.write_vectored(pieces)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.done(Call::Flush)
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.done(Call::Shutdown)
            }
        }
    };
}
records!(AsyncRead, &mut ReadBuf<'_>, AsyncWrite);
records!(hyper::rt::Read, ReadBufCursor<'_>, hyper::rt::Write);

/// Asserts that a wrapper of tokio streams passes several pieces on as several pieces.
///
/// `wrap` puts the wrapper around a recording stream. The wrapper must be ready to write at once, without a runtime.
///
/// # Panics
///
/// Panics if the wrapper does not implement `is_write_vectored` or `poll_write_vectored`, or changes the bytes. The
/// message says what to add.
#[track_caller]
pub fn assert_vectored<W: AsyncWrite + Unpin>(wrap: impl FnOnce(Recorder) -> W) {
    let recorder = Recorder::default();
    let mut wrapper = wrap(recorder.clone());
    let claims = wrapper.is_write_vectored();
    let written = poll(|cx, pieces| Pin::new(&mut wrapper).poll_write_vectored(cx, pieces));
    check("tokio::io::AsyncWrite", claims, written, &recorder);
}

/// Does the same as [`assert_vectored`], for wrappers of streams with hyper's traits.
#[track_caller]
pub fn assert_vectored_hyper<W: hyper::rt::Write + Unpin>(wrap: impl FnOnce(Recorder) -> W) {
    let recorder = Recorder::default();
    let mut wrapper = wrap(recorder.clone());
    let claims = wrapper.is_write_vectored();
    let written = poll(|cx, pieces| Pin::new(&mut wrapper).poll_write_vectored(cx, pieces));
    check("hyper::rt::Write", claims, written, &recorder);
}

fn poll<T>(write: impl FnOnce(&mut Context<'_>, &[IoSlice<'_>]) -> T) -> T {
    write(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(HEAD), IoSlice::new(BODY)])
}

#[track_caller]
fn check(name: &str, claims: bool, written: Poll<io::Result<usize>>, recorder: &Recorder) {
    assert!(
        claims,
        "the wrapper says that it cannot write several pieces at a time, so hyper will copy every body: add\n    \
         fn is_write_vectored(&self) -> bool {{ self.inner.is_write_vectored() }}\nto its `impl {name}`"
    );
    let Poll::Ready(Ok(written)) = written else {
        panic!("the stream was ready, but `poll_write_vectored` of the wrapper returned {written:?}");
    };
    let calls = recorder.calls();
    let whole = Call::WriteVectored(vec![HEAD.to_vec(), BODY.to_vec()]);
    assert!(
        calls.contains(&whole),
        "the wrapper was given two pieces at a time and handed on {calls:?}: add `poll_write_vectored` to its \
         `impl {name}` and call the inner stream's `poll_write_vectored` there with all pieces"
    );
    let all = HEAD.len() + BODY.len();
    assert_eq!(calls.len(), 1, "one write became several calls: {calls:?}");
    assert_eq!(written, all, "the inner stream took {all} bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrapper that implements the two methods only if configured to.
    struct Wrapper<const CLAIM: bool, const FORWARD: bool>(Recorder);

    impl<const CLAIM: bool, const FORWARD: bool> AsyncWrite for Wrapper<CLAIM, FORWARD> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
            AsyncWrite::poll_write(Pin::new(&mut self.0), cx, piece)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            match FORWARD {
                true => AsyncWrite::poll_write_vectored(Pin::new(&mut self.0), cx, pieces),
                // Default implementation of the trait: writes the first piece that is not empty.
                false => self.poll_write(cx, pieces.iter().find(|piece| !piece.is_empty()).map_or(&[], |piece| piece)),
            }
        }

        fn is_write_vectored(&self) -> bool {
            CLAIM && AsyncWrite::is_write_vectored(&self.0)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            AsyncWrite::poll_shutdown(Pin::new(&mut self.0), cx)
        }
    }

    #[test]
    fn a_wrapper_that_forwards_both_passes() {
        assert_vectored(Wrapper::<true, true>);
        assert_vectored(|inner| inner);
    }

    #[test]
    #[should_panic(expected = "fn is_write_vectored(&self) -> bool { self.inner.is_write_vectored() }")]
    fn a_wrapper_that_forgets_to_say_so_is_told() {
        assert_vectored(Wrapper::<false, true>);
    }

    #[test]
    #[should_panic(expected = "add `poll_write_vectored` to its `impl tokio::io::AsyncWrite`")]
    fn a_wrapper_that_forgets_to_do_so_is_told() {
        assert_vectored(Wrapper::<true, false>);
    }

    #[test]
    fn hyper_streams_are_checked_too() {
        assert_vectored_hyper(|inner| inner);
        assert_vectored_hyper(|inner| hyper_util::rt::TokioIo::new(Wrapper::<true, true>(inner)));
    }

    #[test]
    #[should_panic(expected = "`impl hyper::rt::Write`")]
    fn a_hyper_wrapper_that_forgets_is_told() {
        assert_vectored_hyper(|inner| hyper_util::rt::TokioIo::new(Wrapper::<true, false>(inner)));
    }

    #[test]
    #[should_panic(expected = "returned Pending")]
    fn a_wrapper_that_is_not_ready_is_told() {
        struct Never;
        impl hyper::rt::Write for Never {
            fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
                Poll::Pending
            }
            fn is_write_vectored(&self) -> bool {
                true
            }
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Pending
            }
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Pending
            }
        }
        assert_vectored_hyper(|_| Never);
    }

    #[test]
    fn the_recorder_remembers_what_was_asked() {
        let recorder = Recorder::default();
        let mut stream = recorder.clone();
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(AsyncWrite::poll_write(Pin::new(&mut stream), cx, b"one").is_ready());
        assert!(AsyncWrite::poll_flush(Pin::new(&mut stream), cx).is_ready());
        assert!(AsyncWrite::poll_shutdown(Pin::new(&mut stream), cx).is_ready());
        assert_eq!(recorder.calls(), [Call::Write(b"one".to_vec()), Call::Flush, Call::Shutdown]);
    }
}
