//! The `SIGBUS` guard: the process survives a mapped file that shrinks.
//!
//! Touching a page beyond the end of a mapped file raises `SIGBUS` ([mmap(2)]). If the address lies in a granule with a
//! mapped file, the guard marks the granule as torn and maps zeros from the touched page to the end of the mapping. The
//! operation that read there checks afterwards whether its bytes are [torn](super::Granule::is_torn).
//!
//! `si_code` ([sigaction(2)]) distinguishes other causes of `SIGBUS`:
//!
//! | | |
//! |---|---|
//! | `BUS_ADRERR`, `BUS_MCEERR_AR` in a mapped file | bytes are lost: the file shrank, or disk or memory failed |
//! | any other fault, pool memory included | passed to the previous action |
//! | sent by `kill(2)` and the like | passed to the previous action; the guard stays installed |
//!
//! The previous action ends the process (the default), ignores a sent signal (but no fault), or is a handler, which is
//! called. If a handler restores the default action, as that of Rust's standard library does, a fault ends the process
//! when the instruction runs again. After a sent signal the guard reinstalls itself.
//!
//! [mmap(2)]: https://man7.org/linux/man-pages/man2/mmap.2.html
//! [sigaction(2)]: https://man7.org/linux/man-pages/man2/sigaction.2.html

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{BASE, FILES, GRANULE, LEN, TORN, before_zeros, pages};

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn action() -> libc::sigaction {
    // SAFETY: an all-zero sigaction is a valid value of this plain C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigbus as Handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    action
}

fn present() -> io::Result<libc::sigaction> {
    // SAFETY: as in `action`.
    let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call only queries the current action, and `present` outlives it.
    match unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut present) } {
        0 => Ok(present),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the handler is async-signal-safe: it reads atomics, makes system calls, and uses no lock and no
    // allocator.
    match unsafe { libc::sigaction(libc::SIGBUS, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn install() -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let previous = present()?;
    // Must be set before the handler can run.
    PREVIOUS.get_or_init(|| previous);
    set(&action())
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let info_ref = unsafe { &*info };
    // Positive codes come from the kernel, others from kill(2), tgkill(2) or sigqueue(3).
    let is_sent = info_ref.si_code <= 0;
    // SAFETY: the kernel sets si_addr for its own codes of SIGBUS; for other codes the value is not used.
    let addr = unsafe { info_ref.si_addr() } as usize;
    if !is_lost(info_ref.si_code) || !patch(addr) {
        pass_on(is_sent, signal, info, context);
    }
}

fn is_lost(code: c_int) -> bool {
    matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR)
}

/// Maps zero pages from the touched page to the end of a file mapping: the bytes behind that page are gone too. Returns
/// `false` if there is no file mapping at `addr`.
fn patch(addr: usize) -> bool {
    // Its store is behind that of the base.
    let len = LEN.load(Ordering::Acquire);
    let base = BASE.load(Ordering::Relaxed);
    let offset = addr.wrapping_sub(base.addr());
    if offset >= len {
        return false;
    }
    let index = offset / GRANULE;
    let page = rustix::param::page_size();
    let mapped = FILES[index].load(Ordering::Acquire).next_multiple_of(page);
    let from = (offset % GRANULE) / page * page;
    if from >= mapped {
        return false;
    }
    // Set before the zeros are visible, so that an operation that reads a zero also sees the mark.
    TORN[index].store(true, Ordering::Relaxed);
    before_zeros();
    // SAFETY: the pages lie in a granule with a mapped file; readers see zeros in place of lost bytes.
    unsafe { pages::map_zeros(base.wrapping_add(index * GRANULE + from), mapped - from) }.is_ok()
}

/// Passes a signal that does not concern a mapped file to the previous action.
fn pass_on(is_sent: bool, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get();
    match previous.map(|p| (p.sa_sigaction, p.sa_flags & libc::SA_SIGINFO != 0)) {
        Some((libc::SIG_IGN, _)) if is_sent => {}
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            // SAFETY: restores the default action. A faulting instruction runs again and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if is_sent {
                // SAFETY: sends the signal to this thread, which does not block it; the process ends.
                unsafe { libc::raise(signal) };
            }
        }
        Some((handler, with_info)) => {
            if with_info {
                // SAFETY: SA_SIGINFO says that the stored address is a function of this type.
                let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO the stored address is a function of this type.
                let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
            if is_sent && present().is_ok_and(|present| present.sa_sigaction == libc::SIG_DFL) {
                let _ = set(&action());
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::range;
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn only_lost_bytes_of_mapped_files_are_replaced() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapped = range().unwrap().take().unwrap();
        mapped.map_file(file.as_fd(), 0, 8192).unwrap();
        let mut memory = range().unwrap().take().unwrap();
        memory.map_memory(8192).unwrap();
        // SAFETY: just mapped for writing, and nothing refers to it.
        unsafe { memory.start().write_bytes(7, 8192) };
        assert!(!patch(memory.start().addr() + 5), "a fault in pool memory was taken for a file that shrank");
        // SAFETY: mapped and initialised above.
        assert_eq!(unsafe { memory.start().wrapping_add(5).read() }, 7);
        assert!(!memory.is_torn());
        assert!(!patch(mapped.start().addr() + 8192), "behind the file");
        assert!(!mapped.is_torn());
        assert!(patch(mapped.start().addr() + 5));
        assert!(mapped.is_torn());
    }

    #[test]
    fn only_faults_are_taken_for_lost_bytes() {
        for code in [libc::BUS_ADRERR, libc::BUS_MCEERR_AR] {
            assert!(is_lost(code));
        }
        for code in [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL, libc::BUS_ADRALN, libc::BUS_MCEERR_AO] {
            assert!(!is_lost(code), "{code}");
        }
    }
}
