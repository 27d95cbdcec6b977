//! Counts what a server spends in user space for each request, message and event: instructions by callgrind, system calls by
//! strace. Unlike times, they are the same on a busy machine.
//!
//! `.ci/instructions` builds this program and prints the table; `.ci/instructions check` compares it with `counts.txt`, and
//! `.ci/instructions write` writes that file. A row is chosen by a part of its name: `.ci/instructions print echo`.
//!
//! The server is a process of its own with a current-thread runtime; the client is not counted. Each server runs twice, for a
//! number of units and for twice as many, and the difference is the count: start and end cancel out.

mod client;
mod count;
mod floor;
mod keys;
mod message;
mod rows;
mod servers;
mod table;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["serve", name] => servers::serve(name).map_err(|e| format!("{name}: {e}")),
        ["print"] => table::print(""),
        ["print", filter] => table::print(filter),
        ["check"] => table::check(),
        ["write"] => table::write(),
        _ => Err(
            "counts need valgrind, strace and a feature of rustix: run .ci/instructions [print ROW | check | write]"
                .into(),
        ),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
