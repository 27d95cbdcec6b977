//! Says what millstream can use on this machine, and what it costs where the answer is no.
//!
//! `cargo run --example doctor`. It always exits 0: every "no" has a way around it, or is refused for a reason.

use millstream::{Capabilities, Support};

/// A capability, how to ask for it, and what its absence means.
type Check = (&'static str, fn(&Capabilities) -> &Support, &'static str);

const CHECKS: [Check; 5] = [
    (
        "sendfile",
        Capabilities::sendfile,
        "File bodies are copied to the socket from their mapping: same bytes, more CPU time per MB. Usual causes: a \
         seccomp profile, or a sandbox such as gVisor.",
    ),
    (
        "read_nowait",
        Capabilities::read_nowait,
        "A small file that has no mapping is read on the blocking pool, one thread hop each, even if the page cache has \
         it. Usual cause: Linux before 4.14.",
    ),
    (
        "openat2",
        Capabilities::openat2,
        "Directories are not served at all. No other call keeps a path beneath a directory while somebody renames \
         things in it, and a weaker check would be a hole. Needs Linux 5.6; container runtimes with an old seccomp \
         profile block it, then update the runtime or allow the call.",
    ),
    (
        "cachestat",
        Capabilities::cachestat,
        "Whether a file is in memory cannot be asked, so each file is read once on the blocking pool to be sure. Needs \
         Linux 6.5.",
    ),
    (
        "mapping",
        Capabilities::mapping,
        "File bodies are read into pool memory and copied to the socket; sendfile is not used for them. Usual causes: \
         a limit on address space (ulimit -v), or a SIGBUS handler that could not be installed.",
    ),
];

fn main() {
    let capabilities = Capabilities::get();
    println!("{capabilities}");
    let missing: Vec<&Check> = CHECKS.iter().filter(|(_, ask, _)| !ask(capabilities).is_yes()).collect();
    if missing.is_empty() {
        println!("Nothing is missing: every path millstream has is open here.");
        return;
    }
    for (name, ask, meaning) in missing {
        println!("{name}: {}\n  {meaning}", ask(capabilities));
    }
}
