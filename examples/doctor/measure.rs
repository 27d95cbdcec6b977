//! `--measure`: the cost of each path on this machine, and whether the library takes the cheapest.

use std::fs::File as StdFile;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::TcpStream as StdStream;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use measuring::statistics::{median, quantile};
use millstream::Capabilities;
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::net::{SendStrategy, TcpStream};
use millstream::runtime::{DriverBuilder, Io};
use rustix::fs::{Advice, fadvise, fstatfs, sendfile};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::link::Link;

const SIZES: [usize; 8] = [1 << 10, 4 << 10, 10 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20];
/// Turns of all contenders; the figures are medians.
const ROUNDS: usize = 13;
/// Ratio to the best path from which `auto` is reported to lose.
const NOISE: f64 = 1.05;

pub(crate) type Error = Box<dyn std::error::Error>;

/// A path, and what it costs: runs so many operations and returns the CPU time of all.
pub(crate) struct Path<'a> {
    pub(crate) name: &'static str,
    /// Whether the library can take it, and `auto` is compared with it.
    pub(crate) ours: bool,
    pub(crate) run: Box<dyn FnMut(usize) -> Result<Duration, Error> + 'a>,
}

/// Costs of a row: the samples of each path, in microseconds of CPU time for each operation.
pub(crate) struct Row {
    title: String,
    paths: Vec<Samples>,
}

struct Samples {
    name: &'static str,
    ours: bool,
    costs: Vec<f64>,
}

impl Row {
    /// Measures all paths by turns, each for about `slice`.
    pub(crate) fn measure(title: String, slice: Duration, mut paths: Vec<Path<'_>>) -> Result<Self, Error> {
        let mut samples = Vec::new();
        // Operations that fill a slice. Also warms up.
        let mut operations = Vec::new();
        for path in &mut paths {
            let mut n = 1;
            let n = loop {
                let spent = (path.run)(n)?;
                if spent * 4 >= slice || n >= 1 << 16 {
                    break (n as f64 * slice.as_secs_f64() / spent.as_secs_f64().max(1e-6)).ceil() as usize;
                }
                n *= 4;
            };
            operations.push(n.clamp(1, 1 << 18));
            samples.push(Samples { name: path.name, ours: path.ours, costs: Vec::new() });
        }
        for round in 0..ROUNDS {
            // Another path begins each turn.
            for i in 0..paths.len() {
                let i = (i + round) % paths.len();
                samples[i].costs.push((paths[i].run)(operations[i])?.as_secs_f64() * 1e6 / operations[i] as f64);
            }
        }
        Ok(Self { title, paths: samples })
    }

    /// Compares the first path, `auto`, with the best one that the library can take: the median of their ratios, turn by
    /// turn, and the name of that path if `auto` costs more in three turns of four. `None` for a row without `auto`.
    fn ratio(&self) -> Option<(f64, Option<&'static str>)> {
        let (auto, others) = self.paths.split_first().filter(|(auto, _)| auto.name == "auto")?;
        let ours = others.iter().filter(|path| path.ours);
        let best = ours.min_by(|a, b| a.median().total_cmp(&b.median()))?;
        let ratios: Vec<f64> = auto.costs.iter().zip(&best.costs).map(|(auto, best)| auto / best).collect();
        Some((median(&ratios), (quantile(&ratios, 0.25) > NOISE).then_some(best.name)))
    }
}

impl Samples {
    fn median(&self) -> f64 {
        median(&self.costs)
    }
}

/// Measures on this link, for about this time, and prints the tables.
pub(crate) fn run(link: &Link, time: Duration) -> Result<(), Error> {
    // All paths of all rows below, and a turn to warm up.
    let slices = (3 + SIZES.len() * 5 + 2 * 2 + 3 * 2 + 4 * 3) * (ROUNDS + 1);
    let slice = time / slices as u32;
    let mut lost = Vec::new();
    print("Calls, microseconds", &[calls(slice)?], &mut Vec::new());
    let rows: Result<Vec<Row>, Error> = SIZES.iter().map(|&size| files(link, size, slice)).collect();
    print(&format!("A file in memory to a socket over {link}, microseconds of CPU time"), &rows?, &mut lost);
    let rows: Result<Vec<Row>, Error> = [1, 8, 64].iter().map(|&streams| sends(link, streams, slice)).collect();
    print(&format!("Messages of 256 B, one for each stream at once, over {link}, for each"), &rows?, &mut lost);
    let mut cases = vec![(1, false), (32, false)];
    let has_disk = has_disk()?;
    if has_disk {
        cases.extend([(1, true), (32, true)]);
    }
    let rows: Result<Vec<Row>, Error> = cases.iter().map(|&(tasks, cold)| reads(tasks, cold, slice)).collect();
    print("Reads of 4 KiB from a file, for each", &rows?, &mut lost);
    if !has_disk {
        println!(
            "Files of {} stay in memory, so none is read from a disk: set TMPDIR.\n",
            std::env::temp_dir().display()
        );
    }
    if lost.is_empty() {
        println!("In no row does `auto` cost 5 % more than another path of the library in three turns of four.");
    } else {
        println!(
            "`auto` costs at least 5 % more than another path of the library, in three turns of four, here. Measure again before you change a setting:"
        );
        lost.iter().for_each(|line| println!("  {line}"));
    }
    Ok(())
}

/// Returns whether temporary files are on a disk, and not in memory only.
fn has_disk() -> Result<bool, Error> {
    // Of linux/magic.h.
    const RAMFS: i64 = 0x8584_58f6;
    const TMPFS: i64 = 0x0102_1994;
    let (_dir, file, _path) = file(1)?;
    Ok(![RAMFS, TMPFS].contains(&(fstatfs(&file)?.f_type as i64)))
}

/// Returns the name and the driver of each path that operations can take here.
fn drivers(of_ring: &'static str, of_calls: &'static str) -> Vec<(&'static str, Io)> {
    let ring = Capabilities::get().io_uring().is_yes().then_some((of_ring, Io::Uring));
    [("auto", Io::Auto)].into_iter().chain(ring).chain([(of_calls, Io::Epoll)]).collect()
}

/// Prints a table, and adds the rows in which `auto` loses to `lost`.
fn print(title: &str, rows: &[Row], lost: &mut Vec<String>) {
    println!("{title}:");
    print!("  {:<24}", "");
    rows[0].paths.iter().for_each(|path| print!("{:>16}", path.name));
    println!("{:>14}", if rows[0].ratio().is_some() { "auto / best" } else { "" });
    for row in rows {
        print!("  {:<24}", row.title);
        row.paths.iter().for_each(|path| print!("{:>16.2}", path.median()));
        match row.ratio() {
            Some((ratio, winner)) => {
                println!("{ratio:>14.2}");
                if let Some(winner) = winner {
                    lost.push(format!("{title}, {}: {ratio:.2} x {winner} ({})", row.title, setting(winner)));
                }
            }
            None => println!(),
        }
    }
    println!();
}

/// Returns the setting that chooses a path.
fn setting(path: &str) -> &'static str {
    match path {
        "from mapping" => "MILLSTREAM_DISABLE=sendfile",
        "read, copied" => "MILLSTREAM_DISABLE=mapping",
        "ring" => "MILLSTREAM_IO=uring",
        "calls" | "pool" => "MILLSTREAM_IO=epoll",
        _ => "SendStrategy::NoCork",
    }
}

/// Returns the CPU time of this thread, and of the process, which has the blocking pool and the kernel's workers.
fn cpu(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

pub(crate) fn spent(clock: ClockId, run: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let before = cpu(clock);
    run()?;
    Ok(cpu(clock) - before)
}

pub(crate) fn runtime(io: Io) -> io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { DriverBuilder::new().io(io).install() })?;
    Ok(runtime)
}

/// The cost of a call that does nothing, and of sending a few bytes.
fn calls(slice: Duration) -> Result<Row, Error> {
    let stream = Link::Loopback.connect()?;
    let nothing = move |n| {
        spent(ClockId::ThreadCPUTime, || {
            (0..n).for_each(|_| _ = std::hint::black_box(rustix::process::getppid()));
            Ok(())
        })
    };
    let clock = move |n| {
        spent(ClockId::ThreadCPUTime, || {
            (0..n).for_each(|_| _ = std::hint::black_box(std::time::Instant::now()));
            Ok(())
        })
    };
    let send = move |n| {
        spent(ClockId::ThreadCPUTime, || (0..n).try_for_each(|_| (&stream).write_all(&[7; 64])).map_err(Into::into))
    };
    let paths = vec![
        Path { name: "getppid", ours: false, run: Box::new(nothing) },
        Path { name: "clock", ours: false, run: Box::new(clock) },
        Path { name: "send 64 B", ours: false, run: Box::new(send) },
    ];
    Row::measure("loopback".to_owned(), slice, paths)
}

/// A file in the page cache.
pub(crate) fn file(len: usize) -> io::Result<(tempfile::TempDir, StdFile, std::path::PathBuf)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    // Not zeros, which a file system could keep without blocks.
    std::fs::write(&path, (0..len).map(|n| ((n * 7) >> 3) as u8).collect::<Vec<u8>>())?;
    let file = StdFile::open(&path)?;
    Ok((dir, file, path))
}

/// Sends a file by plain calls.
type Send = dyn FnMut(&StdStream) -> io::Result<()>;

/// A file of `size` bytes to a socket, by each path.
fn files(link: &Link, size: usize, slice: Duration) -> Result<Row, Error> {
    let (_dir, std, path) = file(size)?;
    let std = &std;
    let of_ours = |name, strategy, mapped| -> Result<Path<'_>, Error> {
        let runtime = runtime(Io::Auto)?;
        let (file, mut stream) = runtime.block_on(async {
            let stream = TcpStream::from_std(link.connect()?)?;
            stream.handle().set_send_strategy(strategy);
            Ok::<_, Error>((File::open(&path).await?, stream))
        })?;
        let run = move |n| {
            spent(ClockId::ThreadCPUTime, || {
                runtime.block_on(async {
                    for _ in 0..n {
                        send_file(&mut stream, &file, mapped).await?;
                        stream.flushed().await?;
                    }
                    Ok(())
                })
            })
        };
        Ok(Path { name, ours: true, run: Box::new(run) })
    };
    let plain = |name, mut send: Box<Send>| -> Result<Path<'_>, Error> {
        let stream = link.connect()?;
        let run = move |n| spent(ClockId::ThreadCPUTime, || (0..n).try_for_each(|_| send(&stream)).map_err(Into::into));
        Ok(Path { name, ours: false, run: Box::new(run) })
    };
    let mut buffer = vec![0; size.min(256 << 10)];
    let (of_reads, of_sendfile) = (std.try_clone()?, std.try_clone()?);
    let reads = move |mut stream: &StdStream| {
        let mut at = 0;
        while at < size {
            let n = of_reads.read_at(&mut buffer, at as u64)?;
            stream.write_all(&buffer[..n])?;
            at += n;
        }
        Ok(())
    };
    let kernel = move |stream: &StdStream| {
        let mut at = 0;
        while at < size as u64 {
            let rest = size - at as usize;
            sendfile(stream, &of_sendfile, Some(&mut at), rest)?;
        }
        Ok(())
    };
    let paths = vec![
        of_ours("auto", SendStrategy::Auto, true)?,
        of_ours("from mapping", SendStrategy::NoSendfile, true)?,
        of_ours("read, copied", SendStrategy::Auto, false)?,
        plain("bare read+write", Box::new(reads))?,
        plain("bare sendfile", Box::new(kernel))?,
    ];
    Row::measure(bytes(size), slice, paths)
}

/// Writes a file as hyper does, so that the stream can tell slices of files.
pub(crate) async fn send_file(stream: &mut (impl AsyncWrite + Unpin), file: &File, mapped: bool) -> Result<(), Error> {
    let mut body = FileBody::new(file, ..)?.mapped(mapped);
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        let mut sent = 0;
        while sent < data.len() {
            let rest = [io::IoSlice::new(&data[sent..])];
            sent += poll_fn(|cx| Pin::new(&mut *stream).poll_write_vectored(cx, &rest)).await?;
        }
    }
    Ok(stream.flush().await?)
}

/// A message for each of many streams, all due in one turn.
fn sends(link: &Link, streams: usize, slice: Duration) -> Result<Row, Error> {
    let path = |name, strategy| -> Result<Path<'_>, Error> {
        let runtime = runtime(Io::Auto)?;
        let mut all = runtime.block_on(async {
            (0..streams)
                .map(|_| {
                    let stream = TcpStream::from_std(link.connect()?)?;
                    stream.handle().set_send_strategy(strategy);
                    Ok(stream)
                })
                .collect::<Result<Vec<TcpStream>, Error>>()
        })?;
        let run = move |n: usize| {
            let turns = n.div_ceil(streams);
            let spent = spent(ClockId::ThreadCPUTime, || {
                runtime.block_on(async {
                    for _ in 0..turns {
                        for stream in &mut all {
                            stream.write_all(&[7; 256]).await?;
                        }
                        for stream in &mut all {
                            stream.flushed().await?;
                        }
                    }
                    Ok(())
                })
            })?;
            Ok(spent.mul_f64(n as f64 / (turns * streams) as f64))
        };
        Ok(Path { name, ours: true, run: Box::new(run) })
    };
    let paths = vec![path("auto", SendStrategy::Auto)?, path("not gathered", SendStrategy::NoCork)?];
    Row::measure(format!("{streams} at once"), slice, paths)
}

/// Reads of a page at random by each driver.
fn reads(tasks: usize, cold: bool, slice: Duration) -> Result<Row, Error> {
    const PAGES: usize = 4096;
    let (_dir, std, path) = file(PAGES * 4096)?;
    std.sync_all()?;
    let path = &path;
    let driver = |name, io| -> Result<Path<'_>, Error> {
        let runtime = runtime(io)?;
        let file = std::sync::Arc::new(runtime.block_on(File::open(path))?);
        let mut next = 0;
        if cold {
            // Read-ahead would answer for the disk.
            fadvise(&*file, 0, None, Advice::Random)?;
        }
        let run = move |n: usize| {
            if cold {
                fadvise(&*file, 0, None, Advice::DontNeed)?;
            }
            // A page that was read is no longer on the disk only.
            let turns = if cold { n.min(PAGES) } else { n }.div_ceil(tasks);
            let spent = spent(ClockId::ProcessCPUTime, || {
                runtime.block_on(async {
                    for _ in 0..turns {
                        let mut all = JoinSet::new();
                        for _ in 0..tasks {
                            next = (next + 1_597) % PAGES;
                            let (file, at) = (file.clone(), next as u64 * 4096);
                            all.spawn(async move { file.read_at(at, 4096).await.map(drop) });
                        }
                        while let Some(read) = all.join_next().await {
                            read??;
                        }
                    }
                    Ok(())
                })
            })?;
            Ok(spent.mul_f64(n as f64 / (turns * tasks) as f64))
        };
        Ok(Path { name, ours: true, run: Box::new(run) })
    };
    let paths = drivers("ring", "pool").into_iter().map(|(name, io)| driver(name, io)).collect::<Result<_, _>>()?;
    Row::measure(format!("{tasks} at once, {}", if cold { "from disk" } else { "in memory" }), slice, paths)
}

pub(crate) fn bytes(size: usize) -> String {
    match size {
        0..=1023 => format!("{size} B"),
        1024..=1_048_575 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}
