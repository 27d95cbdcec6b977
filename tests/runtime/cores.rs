//! Cores: threads that share nothing, each with its own CPU, listener and ring. How they end, and the errors they
//! report.
//!
//! Descriptors and CPUs belong to the process, so each test runs in its own process.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use millstream::Capabilities;
use millstream::files::Files;
use millstream::fs::chain::{Chain, ChainError};
use millstream::net::TcpListener;
use millstream::runtime::{Core, Cores, DriverBuilder, Io, Run, driver_info};
use millstream::server::serve_cores;
use rustix::thread::{CpuSet, sched_getaffinity};

use testkit::http::{Flavour, Raw, pages, sha256, watched};
use testkit::serving::serve;
use testkit::{HANGS, alone, fds, lacks, seccomp};

/// Returns the CPUs that the calling thread may run on.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// The ring of a core belongs to the thread that creates it, so threads of its blocking pool create none.
#[test]
fn a_blocking_thread_takes_no_ring_from_its_core() {
    if !Capabilities::get().io_uring().is_yes() {
        testkit::skip("rings of cores", Capabilities::get().io_uring());
        return;
    }
    watched(|| {
        let cores = Cores::builder().workers(1).driver(DriverBuilder::new().io(Io::Uring)).build().unwrap();
        let rings = cores.run(async |_| {
            let runtime = tokio::runtime::Handle::current();
            let by_pool = tokio::task::spawn_blocking(move || {
                runtime.block_on(Chain::new().nop().run())?;
                Ok::<_, ChainError>(runtime.block_on(async { driver_info().rings() }))
            });
            let by_pool = by_pool.await.unwrap()?;
            Chain::new().nop().run().await?;
            let info = driver_info();
            Ok::<_, ChainError>((by_pool, info.rings(), info.reason().map(str::to_owned)))
        });
        assert_eq!(rings.wait().unwrap(), [(0, 1, None)]);
    });
}

#[test]
fn each_core_stays_on_its_cpu_and_its_blocking_pool_does_not() {
    if alone::ran_in_child() {
        return;
    }
    let unpinned = testkit::portable("threads are not pinned");
    watched(move || {
        let all = allowed();
        let limited = unpinned || thread::available_parallelism().unwrap().get() < all.len();
        for (pin, expected) in [(true, !limited), (false, false)] {
            let cores = Cores::builder().workers(all.len() + 1).pin(pin).name("mill-").build().unwrap();
            let seen = cores.run(async |core| {
                let name = thread::current().name().map(str::to_owned);
                let blocking = tokio::task::spawn_blocking(|| (allowed(), Core::current())).await?;
                Ok::<_, tokio::task::JoinError>((core, Core::current(), name, allowed(), blocking))
            });
            for (index, (core, current, name, on, blocking)) in seen.wait().unwrap().into_iter().enumerate() {
                let cpu = expected.then(|| all[index % all.len()]);
                assert_eq!((core.index(), core.count(), core.cpu()), (index, all.len() + 1, cpu));
                assert_eq!(current, Some(core));
                assert_eq!(name.unwrap(), format!("mill-{index}"));
                assert_eq!(on, cpu.map_or(all.clone(), |cpu| vec![cpu]));
                assert_eq!(blocking, (all.clone(), None), "pool threads are not pinned");
            }
            cores.shutdown(HANGS).unwrap();
        }
    });
}

#[test]
fn threads_that_cannot_be_pinned_run_all_the_same() {
    if alone::ran_in_child() {
        return;
    }
    seccomp::deny(libc::SYS_sched_setaffinity, rustix::io::Errno::PERM);
    let cores = Cores::new(2).unwrap();
    let seen = cores.run(async |core| Ok::<_, ()>((core.cpu(), allowed()))).wait();
    assert_eq!(seen.unwrap(), [(None, allowed()), (None, allowed())]);
    cores.shutdown(Duration::MAX).unwrap();
}

#[test]
fn by_default_there_are_as_many_as_cpus() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let cores = Cores::builder().build().unwrap();
        assert_eq!(cores.count(), thread::available_parallelism().unwrap().get());
        assert_eq!(Cores::new(0).unwrap().count(), 1);
    });
}

/// Serves the core's number on each of `cores`.
fn numbers(cores: &Cores) -> (SocketAddr, Run<(), io::Error, ()>) {
    let listeners = TcpListener::builder().bind_each("127.0.0.1:0", cores.count()).unwrap();
    let addr = listeners.local_addr();
    let service = tower::service_fn(async |_| {
        let number = Core::current().unwrap().index().to_string();
        Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from(number))))
    });
    (addr, serve_cores(cores, listeners, service).run())
}

/// Opens connections until every core has one. The kernel distributes them, so a core may get more than one.
async fn to_each(addr: SocketAddr, cores: usize) -> Vec<Raw> {
    let mut clients: Vec<Vec<Raw>> = (0..cores).map(|_| Vec::new()).collect();
    while clients.iter().any(Vec::is_empty) {
        let mut client = Raw::connect(addr).await;
        let (status, number) = client.get("/").await;
        assert_eq!(status, 200);
        clients[String::from_utf8(number).unwrap().parse::<usize>().unwrap()].push(client);
        assert!(clients.iter().flatten().count() < 500, "not spread");
    }
    for (index, own) in clients.iter_mut().enumerate() {
        for client in own {
            let answer = client.get("/").await;
            assert_eq!(answer, (200, index.to_string().into_bytes()), "a connection stays on its core");
        }
    }
    clients.into_iter().flatten().collect()
}

#[test]
fn connections_are_spread_and_end_with_the_cores_which_leave_no_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        // Creates the descriptors that exist once per process.
        drop(Cores::new(1).unwrap());
        let client = Flavour::CurrentThread.runtime();
        let before = fds();
        for workers in [1, 2, 3] {
            let cores = Cores::new(workers).unwrap();
            let (addr, server) = numbers(&cores);
            let mut clients = client.block_on(to_each(addr, workers));
            // One more connection, which has sent no request.
            clients.push(client.block_on(Raw::connect(addr)));
            cores.shutdown(HANGS).unwrap();
            // Its tasks keep the drivers of their runtimes.
            drop(server);
            for client_of in &mut clients {
                assert_eq!(client.block_on(client_of.drain()), b"");
            }
            assert_eq!(fds().len() - before.len(), clients.len(), "the clients' own are left: {:#?}", fds());
            let refused = client.block_on(tokio::net::TcpStream::connect(addr)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            drop(clients);
            assert_eq!(fds(), before);
        }
    });
}

#[test]
fn a_server_that_is_dropped_closes_its_listeners_and_finishes_its_connections() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let client = Flavour::CurrentThread.runtime();
        let cores = Cores::new(2).unwrap();
        let (addr, server) = numbers(&cores);
        let mut clients = client.block_on(to_each(addr, 2));
        drop(server);
        let refused = || client.block_on(tokio::net::TcpStream::connect(addr)).err().map(|e| e.kind());
        // Each core closes its own listener, one after another.
        while refused() != Some(io::ErrorKind::ConnectionRefused) {}
        for client_of in &mut clients {
            assert_eq!(client.block_on(client_of.get("/")).0, 200);
        }
    });
}

#[test]
fn too_few_listeners_are_an_error_and_so_is_an_address_in_use() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 1).unwrap();
        let addr = listeners.local_addr();
        let error = TcpListener::builder().bind_each(addr, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        let sharing = TcpListener::builder().reuse_port(true).bind_each(addr, 2).unwrap();
        assert_eq!(sharing.local_addr(), addr);
        drop(sharing);
        let service = tower::service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::new()))));
        let error = serve_cores(&cores, listeners, service).run().wait().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    });
}

struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn the_first_error_or_panic_is_told_and_drops_the_other_futures() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        for panics in [false, true] {
            let cores = Cores::new(3).unwrap();
            let count = Arc::clone(&alive);
            let mut run = cores.run(move |core| {
                // Neither this nor the future is `Send`.
                let mine = Rc::new(Cell::new(core.index()));
                let count = Arc::clone(&count);
                async move {
                    let _alive = Alive::new(&count);
                    while count.load(Ordering::SeqCst) < 3 && mine.get() == 1 {
                        tokio::task::yield_now().await;
                    }
                    match mine.get() {
                        1 if panics => panic!("the pan is hot"),
                        1 => Err(io::Error::other("the mill stands still")),
                        _ => std::future::pending::<io::Result<()>>().await,
                    }
                }
            });
            let here = Flavour::CurrentThread.runtime();
            let caught = catch_unwind(AssertUnwindSafe(|| here.block_on(&mut run)));
            match caught {
                Ok(result) => {
                    assert_eq!((panics, result.unwrap_err().to_string().as_str()), (false, "the mill stands still"))
                }
                Err(panic) => assert_eq!((panics, *panic.downcast::<&str>().unwrap()), (true, "the pan is hot")),
            }
            assert_eq!(cores.run(async |core| Ok::<_, ()>(core.index())).wait(), Ok(vec![0, 1, 2]));
            while alive.load(Ordering::SeqCst) > 0 {}
            drop(run);
            cores.shutdown(HANGS).unwrap();
        }
    });
}

#[test]
fn a_task_says_what_became_of_it() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let here = Flavour::CurrentThread.runtime();
        let done = cores.spawn_on(1, async |core| {
            let mine = Rc::new(core);
            tokio::task::yield_now().await;
            // The task can spawn other tasks that are not `Send`.
            tokio::task::spawn_local(async move { mine.index() }).await.unwrap()
        });
        assert_eq!(here.block_on(done).unwrap(), 1);
        let error = here.block_on(cores.spawn_on(0, async |_| panic!("hot"))).unwrap_err();
        assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "hot");
        // A run is also a future, and tasks of the cores can await it.
        let count = Arc::new(cores);
        let run = count.run(async |core| Ok::<_, ()>(core.index()));
        assert_eq!(here.block_on(count.spawn_on(0, async |_| run.await)).unwrap(), Ok(vec![0, 1]));
        // A blocking wait on a core would never end, so it panics.
        let run = count.run(async |_| Ok::<_, ()>(()));
        assert!(here.block_on(count.spawn_on(0, async |_| run.wait())).unwrap_err().is_panic());
        // A task of the cores drops the last reference to them.
        let handle = count.handle(1).clone();
        let (tell, told) = mpsc::channel();
        count.handle(0).clone().spawn(async move {
            drop(count);
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        let error = here.block_on(handle.spawn(async {})).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    });
}

#[test]
fn a_core_that_does_not_come_back_is_named_and_left() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let alive = Arc::new(AtomicUsize::new(0));
        let other = Alive::new(&alive);
        drop(cores.handle(0).spawn(async move {
            let _other = other;
            std::future::pending::<()>().await;
        }));
        drop(cores.spawn_on(1, async move |_| {
            tell.send(()).unwrap();
            // Blocks the thread, which a task must not do.
            wait.recv().unwrap_err();
            tell.send(()).unwrap();
        }));
        told.recv().unwrap();
        // The time that the other core has to come back, on a busy machine too.
        let error = cores.shutdown(Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("cores [1] still run"), "{error}");
        assert_eq!(alive.load(Ordering::SeqCst), 0, "the task of the other core is dropped");
        drop(release);
        told.recv().unwrap();
        assert!(told.recv().is_err());
    });
}

#[test]
fn each_core_has_a_ring_of_its_own_set_up_for_one_thread() {
    if alone::ran_in_child() {
        return;
    }
    if lacks("io_uring") {
        return;
    }
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let cores = Cores::builder().workers(3).driver(DriverBuilder::new().io(Io::Uring)).build().unwrap();
        let seen = cores.run(move |core| {
            let file = path.join(core.index().to_string());
            async move {
                millstream::fs::replace(&file, format!("of core {}", core.index())).await?;
                let read = millstream::fs::File::open(&file).await?.read_at(0, 100).await?;
                Ok::<_, io::Error>((driver_info(), read))
            }
        });
        for (index, (info, read)) in seen.wait().unwrap().into_iter().enumerate() {
            assert_eq!(read, format!("of core {index}"));
            assert_eq!((info.rings(), info.reason()), (1, None), "{info}");
            // Supported since Linux 6.1.
            println!("{info}");
        }
        cores.shutdown(HANGS).unwrap();
    });
}

#[test]
fn files_are_served_whole_whichever_way_operations_go() {
    if alone::ran_in_child() {
        return;
    }
    const FILES: [(&str, usize); 3] = [("small", 5000), ("kept", 100 << 10), ("large", 3 << 20)];
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let expected = FILES.map(|(name, len)| {
            let bytes = pages(len);
            std::fs::write(dir.path().join(name), &bytes).unwrap();
            (name, len, sha256(&bytes))
        });
        let client = Flavour::CurrentThread.runtime();
        for io in [Io::Auto, Io::Uring, Io::Epoll] {
            let cores = Cores::builder().workers(2).driver(DriverBuilder::new().io(io)).build().unwrap();
            let listeners = TcpListener::builder().bind_each("127.0.0.1:0", cores.count()).unwrap();
            let (addr, path) = (listeners.local_addr(), dir.path().to_owned());
            // A service created on each core, with the core's counters.
            let server = cores.run(move |core| {
                let (listener, files) = (listeners.take(), Files::new(&path));
                async move {
                    let files = files?;
                    let service = tower::service_fn(move |request: hyper::Request<millstream::server::RequestBody>| {
                        let files = files.clone();
                        async move {
                            let mut answer = files.get(request.method(), request.uri(), request.headers()).await;
                            answer.headers_mut().insert("core", core.index().into());
                            Ok::<_, Infallible>(answer)
                        }
                    });
                    serve(listener?, service).await
                }
            });
            client.block_on(async {
                let mut seen = [0; 2];
                while seen.contains(&0) {
                    let mut client = Raw::connect(addr).await;
                    for (name, len, sum) in expected {
                        client.ask(&format!("/{name}")).await;
                        let head = client.head().await;
                        assert_eq!((head.status, head.content_length()), (200, len));
                        seen[head.field("core").unwrap().parse::<usize>().unwrap()] += 1;
                        assert_eq!(sha256(client.body(len).await.unwrap()), sum, "{name} {io}");
                    }
                    assert!(seen[0] + seen[1] < 1500, "not spread");
                }
            });
            drop(server);
            cores.shutdown(HANGS).unwrap();
        }
    });
}
