//! A ring without room behaves like no ring: programs that never end neither stop nor delay other operations.

use std::fs;
use std::future::{Future, poll_fn};
use std::io::{PipeReader, PipeWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use millstream::Capabilities;
use millstream::files::Files;
use millstream::fs::File;
use millstream::fs::OpenOptions;
use millstream::fs::chain::Chain;
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::runtime::{DriverBuilder, Io, driver_info};
use proptest::prelude::*;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use testkit::http::{Flavour, Raw, ask, watched};
use testkit::{HANGS, alone};

/// Counters and descriptors are global to the process, so tests run one at a time.
fn runtime(flavour: Flavour, io: Io, entries: u32) -> Runtime {
    println!("{flavour:?}, {io}, {entries} entries");
    let runtime = flavour.runtime();
    runtime.block_on(async { DriverBuilder::new().io(io).entries(entries).install().unwrap() });
    runtime
}

/// Runs `test` on a runtime with rings of this many entries.
fn on<R: Future<Output = ()> + Send + 'static>(flavour: Flavour, io: Io, entries: u32, test: R) {
    let runtime = runtime(flavour, io, entries);
    runtime.block_on(async { tokio::spawn(timeout(HANGS, test)).await.unwrap().expect("it hangs") });
    runtime.shutdown_timeout(HANGS);
}

fn pipe() -> (Arc<PipeReader>, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Arc::new(reader), writer)
}

fn start(chain: Chain) -> JoinHandle<()> {
    tokio::spawn(async { drop(chain.run().await) })
}

async fn turns(n: usize) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

fn noise_file(len: usize) -> (File, Vec<u8>) {
    let file = tempfile::tempfile().unwrap();
    let bytes = testkit::noise(len);
    file.write_all_at(&bytes, 0).unwrap();
    (File::from_std(file).unwrap(), bytes)
}

#[test]
fn programs_that_were_given_up_leave_their_room_to_others() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for (io, entries) in [(Io::Auto, 128), (Io::Uring, 32), (Io::Epoll, 32)] {
            on(Flavour::CurrentThread, io, entries, async {
                let (reader, _writer) = pipe();
                let reads = (0..600).map(|_| Chain::new().on(Arc::clone(&reader)).read(1).run());
                let reads = reads.map(|read| timeout(Duration::from_millis(20), read));
                let ended = futures_util::future::join_all(reads).await;
                assert!(ended.iter().all(Result::is_err), "nothing was ever written");
                let (file, bytes) = noise_file(1 << 20);
                assert!(file.read_at(0, 1 << 20).await.unwrap() == bytes);
            });
        }
    });
}

#[test]
fn chains_that_hold_files_open_delay_no_other_program() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for io in [Io::Auto, Io::Uring, Io::Epoll] {
            on(Flavour::CurrentThread, io, 128, async {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("file");
                fs::write(&path, "bytes").unwrap();
                let (reader, _writer) = pipe();
                let wait = |path: &Path| {
                    let chain = Chain::new().open(path, OpenOptions::new().read(true)).read(1);
                    start(chain.on(Arc::clone(&reader)).read(1))
                };
                let waiting: Vec<_> = (0..300).map(|_| wait(&path)).collect();
                turns(50).await;
                let (file, bytes) = noise_file(1 << 20);
                assert!(file.read_at(0, 1 << 20).await.unwrap() == bytes);
                let chain = Chain::new().open(&path, OpenOptions::new().read(true)).read(5);
                assert_eq!(chain.run().await.unwrap().reads()[0], "bytes");
                assert!(waiting.iter().all(|task| !task.is_finished()));
            });
        }
    });
}

#[test]
fn streams_send_while_the_ring_is_full() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        on(Flavour::CurrentThread, Io::Uring, 32, async {
            let (reader, _writer) = pipe();
            let waiting: Vec<_> = (0..600).map(|_| start(Chain::new().on(Arc::clone(&reader)).read(1))).collect();
            turns(50).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            for _ in 0..3 {
                let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (mut stream, _) = listener.accept().await.unwrap();
                for n in 0..10u8 {
                    // This task does not flush: the flusher does, between its turns of the ring.
                    stream.write_all(&[n; 100]).await.unwrap();
                    let mut got = [0; 100];
                    client.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, [n; 100]);
                }
            }
            assert!(waiting.iter().all(|task| !task.is_finished()));
        });
    });
}

#[test]
fn a_fifo_that_has_no_reader_keeps_no_thread_from_others() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for io in [Io::Uring, Io::Epoll] {
            on(Flavour::CurrentThread, io, 128, async {
                let dir = tempfile::tempdir().unwrap();
                let (fifo, mode) = (dir.path().join("fifo"), rustix::fs::Mode::from_raw_mode(0o600));
                rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                let writes = || OpenOptions::new().write(true).create(true);
                let waiting: Vec<_> = (0..80).map(|_| start(Chain::new().open(&fifo, writes()).write("x"))).collect();
                turns(50).await;
                // These operations are done by threads of the kernel.
                let (file, bytes) = noise_file(3 << 20);
                assert!(file.read_at(0, 3 << 20).await.unwrap() == bytes);
                file.write_at(0, "fresh").await.unwrap();
                file.sync().await.unwrap();
                let new = dir.path().join("new");
                Chain::new().open(&new, writes()).write("bytes").sync().run().await.unwrap();
                assert_eq!(fs::read(new).unwrap(), b"bytes");
                assert!(waiting.iter().all(|task| !task.is_finished()));
                waiting.iter().for_each(JoinHandle::abort);
                // This ends operations that are opening the FIFO.
                drop(fs::File::options().read(true).write(true).open(&fifo).unwrap());
            });
        }
    });
}

#[test]
fn an_offset_that_no_file_has_is_refused_on_every_way() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for io in [Io::Uring, Io::Epoll] {
            on(Flavour::CurrentThread, io, 32, async {
                let file = tempfile::tempfile().unwrap();
                (&file).write_all(b"0123456789").unwrap();
                let file = Arc::new(file);
                for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
                    let write = Chain::new().on(Arc::clone(&file)).write_at(offset, "never").run().await;
                    let read = Chain::new().on(Arc::clone(&file)).read_at(offset, 5).run().await;
                    for failed in [write.unwrap_err(), read.unwrap_err()] {
                        assert_eq!(failed.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{offset}: {failed}");
                    }
                }
                assert_eq!(file.metadata().unwrap().len(), 10);
                // The position of the file is used where the operation requests it.
                let report = Chain::new().on(Arc::clone(&file)).write("ab").read_at(9, 3).run().await.unwrap();
                assert_eq!(report.reads()[0], "9ab");
            });
        }
    });
}

/// The actions of users: programs that never end by themselves, and their fate.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Pipe,
    Event,
    Socket,
    OpenAndWait,
    Fifo,
    Splice,
    Limited,
    Abort(usize),
    Forget,
    Yield,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => Just(Deed::Pipe),
        2 => Just(Deed::Event),
        2 => Just(Deed::Socket),
        6 => Just(Deed::OpenAndWait),
        1 => Just(Deed::Fifo),
        2 => Just(Deed::Splice),
        2 => Just(Deed::Limited),
        4 => any::<usize>().prop_map(Deed::Abort),
        1 => Just(Deed::Forget),
        1 => Just(Deed::Yield),
    ]
}

/// Maximum number of polls of one fresh operation: it is never woken without progress.
const POLLS_MAX: usize = 64;

/// Awaits an operation that must not wait for others, and counts its polls.
async fn fresh<T>(what: &str, operation: impl Future<Output = T>) -> T {
    let (mut polls, mut operation) = (0, pin!(operation));
    let counted = poll_fn(|cx| {
        polls += 1;
        operation.as_mut().poll(cx)
    });
    let done = timeout(HANGS, counted).await;
    assert!(polls <= POLLS_MAX, "{what}: {polls} polls");
    done.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Operations that never end, and the means to end them.
struct World {
    dir: tempfile::TempDir,
    served: Vec<u8>,
    addr: SocketAddr,
    reader: Arc<PipeReader>,
    writer: PipeWriter,
    event: Arc<std::os::fd::OwnedFd>,
    socket: Arc<UnixStream>,
    peer: UnixStream,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let served = testkit::noise(700_000);
        fs::write(dir.path().join("served"), &served).unwrap();
        fs::write(dir.path().join("file"), &served[..1000]).unwrap();
        let (mode, fifo) = (rustix::fs::Mode::from_raw_mode(0o600), dir.path().join("fifo"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let files = Files::new(dir.path()).unwrap();
        let addr = testkit::http::start(move |request| {
            let files = files.clone();
            async move { ask(&files, &request, |body| body).await }
        })
        .await;
        let (reader, writer) = pipe();
        let (socket, peer) = UnixStream::pair().unwrap();
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let event = Arc::new(rustix::event::eventfd(0, flags).unwrap());
        Self { dir, served, addr, reader, writer, event, socket: Arc::new(socket), peer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn endless(&self, deed: Deed) -> Chain {
        let read = OpenOptions::new().read(true);
        let on_pipe = |chain: Chain| chain.on(Arc::clone(&self.reader)).read(1);
        match deed {
            Deed::Event => Chain::new().on(Arc::clone(&self.event)).read(8),
            Deed::Socket => Chain::new().on(Arc::clone(&self.socket)).read(1),
            Deed::OpenAndWait => on_pipe(Chain::new().open(self.path("file"), read).read(10)),
            Deed::Fifo => Chain::new().open(self.path("fifo"), OpenOptions::new().write(true).create(true)).write("x"),
            Deed::Splice => {
                let sink = Arc::new(std::io::pipe().unwrap().1);
                Chain::new().on(sink).splice_from(Arc::clone(&self.reader), 1)
            }
            Deed::Limited => on_pipe(Chain::new()).timeout(Duration::from_secs(3600)),
            _ => on_pipe(Chain::new()),
        }
    }

    /// Checks that all fresh operations complete, with the right bytes.
    async fn is_alive(&self, round: usize) {
        let (file, bytes) = noise_file(1 << 20);
        let read = fresh("a long read", file.read_at(0, 1 << 20)).await.unwrap();
        assert!(read == bytes, "the bytes of a long read");
        let path = self.path("served");
        testkit::ways::cool(&fs::File::open(&path).unwrap());
        let mut client = fresh("connecting", Raw::connect(self.addr)).await;
        let (status, body) = fresh("a file over HTTP", client.get("/served")).await;
        assert!(status == 200 && body == self.served, "the bytes of a file over HTTP");
        let file = fresh("an open", File::open(&path)).await.unwrap();
        let read = fresh("a short read", file.read_at(1000, 5000)).await.unwrap();
        assert!(read == self.served[1000..6000], "the bytes of a short read");
        let new = self.path(&format!("new-{round}"));
        let chain = Chain::new().open(&new, OpenOptions::new().write(true).create(true)).write("fresh");
        fresh("a chain that creates a file", chain.run()).await.unwrap();
        let chain = Chain::new().open(&new, OpenOptions::new().read(true)).read(5);
        let report = fresh("a chain that reads a file", chain.run()).await.unwrap();
        assert_eq!(report.reads()[0], "fresh");
        let (mut stream, mut peer) = testkit::pair().await;
        for n in 0..3 {
            stream.write_all(&[n; 1000]).await.unwrap();
        }
        let mut got = [0; 3000];
        fresh("a send", peer.read_exact(&mut got)).await.unwrap();
        assert!(got.chunks(1000).zip(0..).all(|(chunk, n)| chunk == [n; 1000]), "the bytes of a stream");
    }

    fn release(&mut self, n: usize) {
        let mut fifo = fs::File::options();
        fifo.read(true).write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        drop(fifo.open(self.path("fifo")).unwrap());
        self.writer.write_all(&vec![0; n]).unwrap();
        self.peer.write_all(&vec![0; n]).unwrap();
    }
}

/// Runs `deeds`, and requests fresh operations now and then.
async fn saturate(deeds: Vec<Deed>) {
    let mut world = World::new().await;
    let mut tasks = Vec::new();
    for (n, deed) in deeds.iter().copied().enumerate() {
        match deed {
            Deed::Abort(_) if tasks.is_empty() => {}
            Deed::Abort(which) => {
                let task: JoinHandle<()> = tasks.swap_remove(which % tasks.len());
                task.abort();
            }
            Deed::Forget => {
                let mut chain = Box::pin(world.endless(Deed::Pipe).run());
                poll_fn(|cx| Poll::Ready(chain.as_mut().poll(cx).is_ready())).await;
                #[expect(clippy::disallowed_methods, reason = "the test covers forgotten values")]
                std::mem::forget(chain);
            }
            Deed::Yield => turns(3).await,
            deed => (0..4).for_each(|_| tasks.push(start(world.endless(deed)))),
        }
        if n % 60 == 59 {
            world.is_alive(n).await;
        }
    }
    world.is_alive(deeds.len()).await;
    assert!(tasks.iter().all(|task| !task.is_finished()), "they wait");
    tasks.iter().for_each(JoinHandle::abort);
    for task in tasks {
        let _ = task.await;
    }
    world.is_alive(deeds.len() + 1).await;
    if Capabilities::get().io_uring().is_yes() {
        assert_eq!(driver_info().reason().filter(|_| driver_info().io() != Io::Epoll), None, "a ring was given up");
    }
    // Forgotten operations end too, and give back everything except their own memory.
    world.release(deeds.len());
    turns(100).await;
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn any_number_of_programs_that_never_end_stop_nothing() {
    if alone::ran_in_child() {
        return;
    }
    let ways = [
        (Flavour::CurrentThread, Io::Auto, 32),
        (Flavour::TwoWorkers, Io::Uring, 32),
        (Flavour::CurrentThread, Io::Uring, 256),
        (Flavour::TwoWorkers, Io::Auto, 256),
        (Flavour::CurrentThread, Io::Epoll, 32),
    ];
    // The first runtimes of a process create resources that persist.
    for (flavour, io, entries) in ways {
        run(flavour, io, entries, vec![Deed::Pipe]);
    }
    let config =
        ProptestConfig { cases: 1, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() };
    for ((flavour, io, entries), forgets) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        proptest!(config.clone(), |(deeds in proptest::collection::vec(deed(), 150..200))| {
            let before = (descriptors(), Snapshot::now());
            let deeds = deeds.into_iter().filter(|deed| forgets || !matches!(deed, Deed::Forget));
            run(flavour, io, entries, deeds.collect());
            let counts = Snapshot::now().since(&before.1);
            prop_assert_eq!((counts.ring_leaks, counts.ring_strays), (0, 0));
            // With io_uring the ring also receives, and a receive completes more than once.
            let receives = io == Io::Uring;
            prop_assert!(counts.ring_completions >= counts.ring_submissions, "{}", counts);
            prop_assert!(receives || counts.ring_completions == counts.ring_submissions, "{}", counts);
            // A forgotten future keeps everything it owns: its pipe, its memory, its driver.
            let left = || (descriptors() > before.0, Snapshot::now().pool_bytes > before.1.pool_bytes);
            let since = Instant::now();
            while !forgets && left() != (false, false) {
                prop_assert!(since.elapsed() < HANGS, "descriptors and memory left: {:?}", left());
                std::thread::yield_now();
            }
        });
    }
}

fn run(flavour: Flavour, io: Io, entries: u32, deeds: Vec<Deed>) {
    watched(move || {
        let runtime = runtime(flavour, io, entries);
        runtime.block_on(async { tokio::spawn(saturate(deeds)).await.unwrap() });
        runtime.shutdown_timeout(HANGS);
    });
}
