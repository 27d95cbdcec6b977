//! A copy whose path is refused by the kernel continues on another path from the correct byte. On a file system that
//! can share blocks, the copy shares them.

use std::os::fd::AsRawFd;
use std::path::Path as FilePath;

use super::ends::{self, Got, Source, Target, tcp};
use millstream::Capabilities;
use millstream::copy::{Copier, CopyPath, CopyReport, copy};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::SockRef;
use testkit::http::{Flavour, sha256};
use testkit::mounts::Mount;
use testkit::{alone, child, lacks, noise, seccomp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LEN: usize = 3 << 20;

fn block_on<F: Future>(work: F) -> F::Output {
    Flavour::CurrentThread.runtime().block_on(work)
}

/// Copies [`LEN`] bytes, checks them, and returns the report.
async fn copied<S: Source, T: Target>() -> CopyReport {
    let bytes = noise(LEN);
    let mut from = S::open(bytes.clone()).await;
    let (mut to, got) = T::open().await;
    let report = copy(&mut from, &mut to).await.unwrap();
    assert_eq!(report.bytes, LEN as u64);
    to.close().await;
    check(got, &bytes).await;
    report
}

async fn check(got: Got, bytes: &[u8]) {
    let got = got.await.unwrap().unwrap();
    assert_eq!(got.len(), bytes.len());
    assert_eq!(sha256(&got), sha256(bytes));
}

fn errno(name: &str) -> Errno {
    match name {
        "ENOSYS" => Errno::NOSYS,
        "EPERM" => Errno::PERM,
        "EINVAL" => Errno::INVAL,
        other => panic!("{other}"),
    }
}

/// Runs the test `name` in a child for each errno that containers and old kernels return.
fn for_each_errno(name: &str) {
    for errno in ["ENOSYS", "EPERM", "EINVAL"] {
        child::run(&mut child::command(name, errno));
    }
}

/// Probes everything before the fault, so that the file system or socket refuses a call and not the machine.
fn found_out() -> bool {
    Capabilities::get();
    // Evaluated without short-circuit, so that all missing capabilities are reported.
    !(lacks("splice") | lacks("sendfile") | lacks("copy_file_range"))
}

#[test]
fn a_call_that_moves_nothing_is_not_used_and_the_probe_ends() {
    const NAME: &str = "refused::a_call_that_moves_nothing_is_not_used_and_the_probe_ends";
    let calls = [
        ("sendfile", libc::SYS_sendfile),
        ("splice", libc::SYS_splice),
        ("copy_file_range", libc::SYS_copy_file_range),
    ];
    let Some(told) = child::task() else {
        return calls.iter().for_each(|(name, _)| drop(child::run(&mut child::command(NAME, name))));
    };
    let (name, call) = calls.into_iter().find(|(name, _)| *name == told).unwrap();
    seccomp::moves_nothing(call);
    let (_, support) = Capabilities::get().entries().find(|(entry, _)| *entry == name).unwrap();
    assert!(!support.is_yes(), "{name}");
}

#[test]
fn splice_is_refused() {
    let Some(told) = child::task() else { return for_each_errno("refused::splice_is_refused") };
    if !found_out() {
        return;
    }
    block_on(async {
        assert_eq!(copied::<TcpStream, TcpStream>().await.refused, None);
        // The pipe holds bytes when the call is refused, so the refusal occurs on the write side.
        let mut stuck = Stuck::new(&noise(LEN)).await;
        stuck.run_until_stuck().await;
        seccomp::deny(libc::SYS_splice, errno(&told));
        let report = stuck.finish().await;
        assert_eq!(report.refused, Some(CopyPath::Splice), "{report:?}");

        for report in [
            copied::<TcpStream, TcpStream>().await,
            copied::<TcpStream, tokio::fs::File>().await,
            copied::<tokio::net::UnixStream, tokio::net::unix::pipe::Sender>().await,
            copied::<TcpStream, millstream::net::TcpStream>().await,
            copied::<TcpStream, millstream::fs::FileWriter>().await,
        ] {
            assert_eq!((report.path, report.refused), (CopyPath::Pump, Some(CopyPath::Splice)), "{report:?}");
        }
        // If io_uring receives for our streams, they are never spliced from.
        let report = copied::<millstream::net::TcpStream, TcpStream>().await;
        assert_eq!(report.path, CopyPath::Pump, "{report:?}");
        let report = copied::<tokio::fs::File, TcpStream>().await;
        assert_eq!((report.path, report.refused), (CopyPath::Sendfile, Some(CopyPath::Splice)), "{report:?}");

        seccomp::deny(libc::SYS_sendfile, errno(&told));
        for report in [
            copied::<tokio::fs::File, TcpStream>().await,
            copied::<millstream::fs::FileReader, millstream::net::TcpStream>().await,
        ] {
            assert_eq!((report.path, report.refused), (CopyPath::Pump, Some(CopyPath::Splice)), "{report:?}");
        }
    });
}

#[test]
fn sendfile_is_refused() {
    let Some(told) = child::task() else { return for_each_errno("refused::sendfile_is_refused") };
    if !found_out() {
        return;
    }
    seccomp::deny(libc::SYS_sendfile, errno(&told));
    block_on(async {
        let report = copied::<tokio::fs::File, tokio::net::unix::pipe::Sender>().await;
        assert_eq!((report.path, report.refused), (CopyPath::Splice, Some(CopyPath::Sendfile)), "{report:?}");
    });
}

#[test]
fn copies_of_files_are_refused() {
    let Some(told) = child::task() else { return for_each_errno("refused::copies_of_files_are_refused") };
    if !found_out() {
        return;
    }
    seccomp::deny(libc::SYS_copy_file_range, errno(&told));
    block_on(async {
        for report in [
            copied::<tokio::fs::File, tokio::fs::File>().await,
            copied::<millstream::fs::FileReader, millstream::fs::FileWriter>().await,
        ] {
            if report.path != CopyPath::Clone {
                let expected = (CopyPath::Pump, Some(CopyPath::CopyFileRange));
                assert_eq!((report.path, report.refused), expected, "{report:?}");
            }
        }
    });
}

/// A capability known to be missing is not tried.
#[test]
fn what_the_machine_lacks_is_no_refusal() {
    let Some(told) = child::task() else { return for_each_errno("refused::what_the_machine_lacks_is_no_refusal") };
    for call in [libc::SYS_splice, libc::SYS_sendfile, libc::SYS_copy_file_range] {
        seccomp::deny(call, errno(&told));
    }
    block_on(async {
        for report in [
            copied::<TcpStream, TcpStream>().await,
            copied::<tokio::fs::File, TcpStream>().await,
            copied::<TcpStream, tokio::fs::File>().await,
        ] {
            assert_eq!((report.path, report.refused), (CopyPath::Pump, None), "{report:?}");
        }
        let report = copied::<tokio::fs::File, tokio::fs::File>().await;
        assert!(matches!(report.path, CopyPath::Pump | CopyPath::Clone) && report.refused.is_none(), "{report:?}");
    });
}

/// A copy to a connection that is read only on request.
struct Stuck {
    bytes: Vec<u8>,
    copy: Copier,
    from: TcpStream,
    to: TcpStream,
    reader: TcpStream,
    got: Vec<u8>,
}

impl Stuck {
    async fn new(bytes: &[u8]) -> Self {
        let from = <TcpStream as Source>::open(bytes.to_vec()).await;
        let (to, reader) = tcp().await;
        // Small, but large enough that the TCP window does not make it slow.
        SockRef::from(&to).set_send_buffer_size(32 << 10).unwrap();
        SockRef::from(&reader).set_recv_buffer_size(32 << 10).unwrap();
        Self { bytes: bytes.to_vec(), copy: Copier::new(), from, to, reader, got: Vec::new() }
    }

    /// More bytes are then in flight than the pump holds before it switches to a pipe: the rest is in the pipe.
    async fn run_until_stuck(&mut self) {
        while self.copy.pending() < 40_000 {
            let mut piece = vec![0; 50_000];
            tokio::select! {
                biased;
                read = self.reader.read_exact(&mut piece) => drop(read.unwrap()),
                _ = self.copy.run(&mut self.from, &mut self.to) => panic!("it has ended"),
            }
            self.got.extend(piece);
            for _ in 0..100 {
                tokio::select! {
                    biased;
                    _ = self.copy.run(&mut self.from, &mut self.to) => panic!("it has ended"),
                    () = tokio::task::yield_now() => {}
                }
            }
        }
    }

    async fn finish(mut self) -> CopyReport {
        let mut rest = Vec::new();
        let copying = async {
            let report = self.copy.run(&mut self.from, &mut self.to).await.unwrap();
            self.to.shutdown().await.unwrap();
            report
        };
        let (report, read) = tokio::join!(copying, self.reader.read_to_end(&mut rest));
        read.unwrap();
        self.got.extend(rest);
        assert_eq!(sha256(&self.got), sha256(&self.bytes));
        report
    }
}

/// Copies a file in `dir`, all of it or a part.
async fn within(dir: &FilePath, limit: Option<u64>) -> CopyReport {
    let (from, to) = (dir.join("from"), dir.join("to"));
    std::fs::write(&from, noise(LEN)).unwrap();
    let mut source = tokio::fs::File::open(&from).await.unwrap();
    let mut target = tokio::fs::File::create(&to).await.unwrap();
    let mut copy = Copier::new();
    if let Some(limit) = limit {
        copy = copy.limit(limit);
    }
    let report = copy.run(&mut source, &mut target).await.unwrap();
    assert!(std::fs::read(&to).unwrap() == noise(LEN)[..report.bytes as usize]);
    report
}

#[test]
fn blocks_are_shared_where_the_file_system_can() {
    let unshared = testkit::portable("files share no blocks");
    for (mkfs, megabytes) in [("mkfs.xfs -q", 320), ("mkfs.btrfs -q", 128)] {
        let Some(disk) = Mount::image("sharing blocks", mkfs, megabytes, "defaults") else { continue };
        block_on(async {
            let report = within(&disk.path(), None).await;
            assert_eq!((report.bytes, report.refused), (LEN as u64, None), "{mkfs}");
            assert!(unshared || report.path == CopyPath::Clone, "{mkfs}: {report:?}");
            let report = within(&disk.path(), Some(LEN as u64 - 1)).await;
            assert_eq!(report.bytes, LEN as u64 - 1);
            assert_ne!(report.path, CopyPath::Clone);
        });
    }
}

#[test]
fn from_one_file_system_to_another() {
    let Some(disk) = Mount::tmpfs("two file systems", "16m") else { return };
    block_on(async {
        let to = disk.path().join("to");
        let mut source = tokio::fs::File::from_std(ends::file(&noise(LEN)));
        let mut target = tokio::fs::File::create(&to).await.unwrap();
        let report = copy(&mut source, &mut target).await.unwrap();
        // Linux 5.19 and later refuse this; earlier kernels allow it.
        assert!(matches!(report.path, CopyPath::CopyFileRange | CopyPath::Pump), "{report:?}");
        assert!(std::fs::read(&to).unwrap() == noise(LEN));
    });
}

#[test]
fn a_disk_that_is_full_is_an_error_after_what_fits() {
    // No multiple of the pieces that are copied at once.
    let Some(disk) = Mount::tmpfs("a full disk", "2100k") else { return };
    block_on(async {
        let path = disk.path().join("to");
        let mut target = tokio::fs::File::create(&path).await.unwrap();
        let mut source = tokio::fs::File::from_std(ends::file(&noise(LEN)));
        let error = copy(&mut source, &mut target).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), error.report().bytes, "{error}");
        // The target holds the bytes copied before the error.
        let mut rest = Vec::new();
        source.read_to_end(&mut rest).await.unwrap();
        assert!(rest == noise(LEN)[error.report().bytes as usize..]);
        drop(target);

        // From a socket, by splice, on the blocking pool.
        let mut target = tokio::fs::File::create(&path).await.unwrap();
        let mut source = <TcpStream as Source>::open(noise(LEN)).await;
        let error = copy(&mut source, &mut target).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        let written = std::fs::metadata(&path).unwrap().len();
        // Bytes buffered by tokio's file count as written.
        assert!(written == error.report().bytes || (written < error.report().bytes && lacks("splice")), "{error}");
    });
}

/// The kernel copies from and to duplicates of tokio's files, because its calls may outlive the handles.
#[test]
fn files_of_tokio_are_copied_without_free_descriptors() {
    if alone::ran_in_child() {
        return;
    }
    Capabilities::get();
    let bytes = noise(LEN);
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, &bytes).unwrap();
        let mut source = tokio::fs::File::open(&from).await.unwrap();
        let mut target = tokio::fs::File::create(&to).await.unwrap();
        let limit = getrlimit(Resource::Nofile);
        let mut low = limit;
        low.current = Some(tempfile::tempfile().unwrap().as_raw_fd() as u64);
        setrlimit(Resource::Nofile, low).unwrap();
        let report = copy(&mut source, &mut target).await;
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(report.unwrap().bytes, LEN as u64);
        target.sync_all().await.unwrap();
        assert!(std::fs::read(&to).unwrap() == bytes);
    });
}
