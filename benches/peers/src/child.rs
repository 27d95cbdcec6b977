//! A contender in a process of its own: started by the runner, asked for its CPU time, ended with the pipe to it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use measuring::{cpus, socket};

use crate::ways::{Way, Work};

/// The child's side. `args` are the CPU to run on, and what the job needs: nothing, the address of the sink, two paths.
pub(crate) fn serve(way: &Way, args: &[String]) -> io::Result<()> {
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "`peers serve` is for the runner: use `peers run`");
    let (cpu, args) = args.split_first().ok_or_else(usage)?;
    if let Ok(cpu) = cpu.parse() {
        cpus::pin(cpu)?;
    }
    match (way.work, args) {
        (Work::Echo(echo), []) => {
            let listener = socket::listener()?;
            answer(listener.local_addr()?);
            echo(listener)
        }
        (Work::Relay(relay), [sink]) => {
            let listener = socket::listener()?;
            answer(listener.local_addr()?);
            relay(listener, sink.parse().map_err(|_| usage())?)
        }
        (Work::File(copy), [from, to]) => {
            let (start, cpu) = (Instant::now(), cpus::process());
            copy(Path::new(from), Path::new(to))?;
            let (wall, cpu) = (start.elapsed(), cpus::process() - cpu);
            println!("{} {}", wall.as_nanos(), cpu.as_nanos());
            Ok(())
        }
        _ => Err(usage()),
    }
}

/// Tells the runner where the server listens, and then its CPU time, in nanoseconds, for every line that it sends. The
/// process ends when there is nobody left to ask.
fn answer(addr: SocketAddr) {
    println!("{addr}");
    thread::spawn(|| {
        for line in io::stdin().lines() {
            if line.is_err() {
                break;
            }
            println!("{}", cpus::process().as_nanos());
        }
        std::process::exit(0);
    });
}

/// The runner's side of a server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    addr: SocketAddr,
}

impl Server {
    pub(crate) fn start(way: &Way, args: &[String]) -> io::Result<Self> {
        let mut process = command(way, args)?.stdin(Stdio::piped()).spawn()?;
        let (Some(ask), Some(answers)) = (process.stdin.take(), process.stdout.take()) else { unreachable!("piped") };
        let mut answers = BufReader::new(answers);
        let addr = line(&mut answers)?;
        Ok(Self { process, ask, answers, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// CPU time it has used so far.
    pub(crate) fn cpu(&mut self) -> io::Result<Duration> {
        self.ask.write_all(b"cpu\n")?;
        line(&mut self.answers).map(Duration::from_nanos)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, and then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Copies a file in a child; gives wall time and CPU time.
pub(crate) fn copy(way: &Way, from: &str, to: &str) -> io::Result<[Duration; 2]> {
    let output = command(way, &[from.to_owned(), to.to_owned()])?.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<Duration> =
        text.split_whitespace().filter_map(|n| n.parse().ok()).map(Duration::from_nanos).collect();
    times.try_into().map_err(|_| io::Error::other(format!("{}: the copy failed, {}", way.name, output.status)))
}

fn command(way: &Way, args: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let cpu = cpus::ends()?.map_or("any".to_owned(), |[server, _]| server.to_string());
    command.args(["serve", way.job().name(), way.name, &cpu]).args(args).env("MILLSTREAM_IO", way.io);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

fn line<T: FromStr>(answers: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    line.trim().parse().map_err(|_| io::Error::other(format!("a server answered `{}`; has it ended?", line.trim())))
}
