//! Capabilities of this machine, probed by use, with the reason for every "no".

use std::fmt;
use std::io;
use std::sync::OnceLock;

use super::probe;

/// Whether a capability works on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// The capability was probed and works.
    Yes,
    /// The capability is not used; the text gives the reason and the replacement.
    No(String),
}

impl Support {
    /// Returns whether the capability works.
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No(reason) => write!(f, "no: {reason}"),
        }
    }
}

/// Kernel capabilities that millstream uses; [`Display`](fmt::Display) prints them as a report.
///
/// Each entry is probed at first use, and the answer is kept, unless the process or the machine is out of descriptors
/// or memory (`EMFILE`, `ENFILE`, `ENOMEM`): then the entry is unavailable for now, and probed again at the next use.
/// If an entry is unavailable, the same calls give the same results by another path. `MILLSTREAM_DISABLE`, a
/// comma-separated list of the names below, turns entries off, for tests and emergencies.
#[derive(Debug)]
pub struct Capabilities {
    system: String,
    sendfile: Entry,
    read_nowait: Entry,
    openat2: Entry,
    cachestat: Entry,
    mapping: Entry,
    io_uring: Entry,
    splice: Entry,
    copy_file_range: Entry,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    /// Description of the replacement.
    instead: &'static str,
    probe: fn() -> io::Result<()>,
    known: OnceLock<Support>,
    /// The result of a probe that lacked descriptors or memory.
    for_now: OnceLock<Support>,
}

impl Entry {
    fn new(disabled: &str, name: &'static str, instead: &'static str, probe: fn() -> io::Result<()>) -> Self {
        let entry = Self { name, instead, probe, known: OnceLock::new(), for_now: OnceLock::new() };
        if lists(disabled, name) {
            let _ = entry.known.set(Support::No(format!("turned off by MILLSTREAM_DISABLE; {instead}")));
        }
        entry.support();
        entry
    }

    fn support(&self) -> &Support {
        if let Some(known) = self.known.get() {
            return known;
        }
        // miri supports few system calls: mappings are emulated there, and sendfile is chosen but never called.
        let probed = match self.name {
            "mapping" | "sendfile" if cfg!(miri) => Ok(()),
            _ if cfg!(miri) => Err(io::ErrorKind::Unsupported.into()),
            _ => (self.probe)(),
        };
        match probed {
            Ok(()) => self.known.get_or_init(|| Support::Yes),
            Err(e) => {
                let answer = if probe::is_for_now(&e) { &self.for_now } else { &self.known };
                answer.get_or_init(|| Support::No(format!("{e}; {}", self.instead)))
            }
        }
    }
}

/// Returns whether `MILLSTREAM_DISABLE` lists `name`, a path of this crate that needs nothing of the kernel.
#[cfg(any(feature = "fs", feature = "server"))]
pub(crate) fn is_disabled(name: &str) -> bool {
    lists(&disabled(), name)
}

fn disabled() -> String {
    std::env::var("MILLSTREAM_DISABLE").unwrap_or_default()
}

fn lists(disabled: &str, name: &str) -> bool {
    disabled.split(',').any(|listed| listed.trim() == name)
}

impl Capabilities {
    /// Returns the capabilities of this process. Probes them at the first call.
    pub fn get() -> &'static Self {
        static KEPT: OnceLock<Capabilities> = OnceLock::new();
        KEPT.get_or_init(|| Self::probe(&disabled()))
    }

    /// Returns support for sending files to sockets inside the kernel, `sendfile(2)`.
    pub fn sendfile(&self) -> &Support {
        self.sendfile.support()
    }

    /// Returns support for reading cached file data on the runtime thread, `preadv2(2)` with `RWF_NOWAIT`, Linux 4.14.
    pub fn read_nowait(&self) -> &Support {
        self.read_nowait.support()
    }

    /// Returns support for resolving paths beneath a directory in the kernel, `openat2(2)`, Linux 5.6.
    pub fn openat2(&self) -> &Support {
        self.openat2.support()
    }

    /// Returns support for querying the cached pages of a file, `cachestat(2)`, Linux 6.5.
    pub fn cachestat(&self) -> &Support {
        self.cachestat.support()
    }

    /// Returns support for mapping files into a reserved address range, guarded against files that shrink.
    pub fn mapping(&self) -> &Support {
        self.mapping.support()
    }

    /// Returns support for [io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html): a ring with `NODROP`,
    /// `EXT_ARG` and `NATIVE_WORKERS` (all present since Linux 5.12) completed one operation.
    pub fn io_uring(&self) -> &Support {
        self.io_uring.support()
    }

    /// Returns support for moving bytes between sockets inside the kernel, `splice(2)` through a pipe.
    pub fn splice(&self) -> &Support {
        self.splice.support()
    }

    /// Returns support for copying between files inside the kernel, `copy_file_range(2)`, Linux 4.5. Whether a pair of
    /// file systems supports it is known only when it is tried.
    pub fn copy_file_range(&self) -> &Support {
        self.copy_file_range.support()
    }

    fn probe(disabled: &str) -> Self {
        let entry = |name, instead, probe| Entry::new(disabled, name, instead, probe);
        Self {
            system: if cfg!(miri) { "miri".to_owned() } else { probe::system() },
            sendfile: entry("sendfile", "file bodies are sent from their mapping", probe::sendfile),
            read_nowait: entry("read_nowait", "small files are read on the blocking pool", probe::read_nowait),
            openat2: entry("openat2", probe::WITHOUT_OPENAT2, probe::openat2),
            cachestat: entry(
                "cachestat",
                "files are warmed on the blocking pool once per validation",
                probe::cachestat,
            ),
            mapping: entry("mapping", "file bodies are read into pool memory on the blocking pool", probe::mapping),
            io_uring: entry("io_uring", "operations on files go to the blocking pool", probe::io_uring),
            splice: entry("splice", "copies between sockets are read and written", probe::splice),
            copy_file_range: entry("copy_file_range", "copies of files are read and written", probe::copy_file_range),
        }
    }

    /// Returns all capabilities with their names. Later versions may have more.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &Support)> {
        let entries = [
            &self.sendfile,
            &self.read_nowait,
            &self.openat2,
            &self.cachestat,
            &self.mapping,
            &self.io_uring,
            &self.splice,
            &self.copy_file_range,
        ];
        entries.into_iter().map(|entry| (entry.name, entry.support()))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.system)?;
        for (name, support) in self.entries() {
            writeln!(f, "  {name:<15} {support}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_can_be_turned_off_and_says_so() {
        let all = "sendfile, read_nowait,openat2,cachestat,mapping,io_uring,splice,copy_file_range";
        let none = Capabilities::probe(all);
        for (name, support) in none.entries() {
            assert!(!support.is_yes(), "{name}");
            assert!(support.to_string().contains("MILLSTREAM_DISABLE"), "{name}: {support}");
        }
    }

    #[test]
    fn the_report_names_the_kernel_and_every_entry() {
        let caps = Capabilities::probe("");
        let report = caps.to_string();
        assert!(cfg!(portable) || report.starts_with("Linux "), "{report}");
        for (name, support) in caps.entries() {
            assert!(report.contains(name), "{report}");
            if !support.is_yes() {
                crate::skips::skip(name, support);
            }
        }
    }
}
