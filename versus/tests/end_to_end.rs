//! The program as users run it: a short run, its results, and that nothing is left running.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn versus(arguments: &[&str], out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_versus"));
    command.args(arguments);
    if !arguments.contains(&"compare") {
        command.arg("--out").arg(out);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str], out: &Path) -> (String, String, bool) {
    let Output { stdout, stderr, status } = versus(arguments, out).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(stdout), text(stderr), status.success())
}

fn file(dir: &Path, extension: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.extension().is_some_and(|is| is == extension))
}

/// Returns the processes that have this directory in their command line.
fn processes(dir: &Path) -> Vec<String> {
    let dir = dir.canonicalize().unwrap().to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains("serve") && line.contains(&dir))
        .collect()
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_quick_run_leaves_valid_results_and_nothing_else() {
    let out = tempfile::tempdir().unwrap();
    let quick = ["--quick", "--only", "files/1k", "--seconds", "0.2", "--rounds", "2"];
    let (printed, progress, ok) = run(&quick, out.path());
    assert!(ok, "{printed}{progress}");
    assert!(progress.contains("left  files/1k  millstream  round 1"), "{progress}");
    let json = file(out.path(), "json").unwrap();
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rounds = results["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 4, "{progress}");
    // Servers take turns, and turns to begin.
    let order: Vec<_> = rounds.iter().map(|round| round["contender"].as_str().unwrap()).collect();
    assert_eq!(order, ["millstream", "stock", "stock", "millstream"]);
    for round in rounds {
        assert!(round["done"].as_f64().unwrap() >= 1.0, "{round}");
        assert!(round["seconds"].as_f64().unwrap() >= 0.2, "{round}");
        assert!(round["pss_kib"].as_u64().is_none_or(|kib| kib > 100), "{round}");
        assert!(!round["latency"].as_array().unwrap().is_empty(), "{round}");
    }
    let page = std::fs::read_to_string(file(out.path(), "html").unwrap()).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert_eq!(processes(out.path()), Vec::<String>::new());
    assert!(!std::fs::read_dir(out.path()).unwrap().any(|entry| entry.unwrap().path().is_dir()), "a directory is left");

    // Resumed, it has nothing to do; compared with itself, nothing to say.
    let lines = file(out.path(), "jsonl").unwrap();
    let (_, progress, ok) = run(&["--resume", lines.to_str().unwrap()], out.path());
    assert!(ok && progress.contains("0 rounds in"), "{progress}");
    let json = json.to_str().unwrap();
    let (printed, _, ok) = run(&["compare", json, json], out.path());
    assert!(ok && printed.starts_with("0 of "), "{printed}");

    // A round that is missing is run again.
    let text = std::fs::read_to_string(&lines).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("\"round\":1,")).collect();
    std::fs::write(&lines, kept.join("\n")).unwrap();
    let (_, progress, ok) = run(&["--resume", lines.to_str().unwrap()], out.path());
    assert!(ok && progress.contains("2 rounds in"), "{progress}");
}

#[test]
fn proxies_are_measured_where_they_are_installed() {
    let out = tempfile::tempdir().unwrap();
    let (printed, progress, ok) =
        run(&["--only", "proxy/", "--seconds", "0.1", "--rounds", "1", "--no-calls", "--with", "stock"], out.path());
    assert!(ok, "{printed}{progress}");
    let results: Value = serde_json::from_slice(&std::fs::read(file(out.path(), "json").unwrap()).unwrap()).unwrap();
    assert_eq!(results["rounds"].as_array().unwrap().len(), 10, "{printed}{progress}");
    for name in ["nginx", "haproxy"] {
        let only = ["--only", "proxy/", "--seconds", "0.1", "--rounds", "1", "--no-calls", "--with", name];
        let (printed, progress, ok) = run(&only, out.path());
        assert!(ok || progress.contains("not installed"), "{printed}{progress}");
        assert!(!ok || !printed.contains("not measured: proxy"), "{printed}{progress}");
    }
    assert_eq!(processes(out.path()), Vec::<String>::new());
}

#[test]
fn every_kind_of_load_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let cells = ["paced/64", "paced/http2", "paced/tls", "rate/", "churn/json", "tls/upload-1m"];
    let mut arguments = vec!["--seconds", "0.2", "--rounds", "1", "--no-calls", "--with", "stock"];
    arguments.extend(cells.iter().flat_map(|cell| ["--only", *cell]));
    let (printed, progress, ok) = run(&arguments, out.path());
    assert!(ok, "{printed}{progress}");
    let results: Value = serde_json::from_slice(&std::fs::read(file(out.path(), "json").unwrap()).unwrap()).unwrap();
    let rounds = results["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 16, "{printed}{progress}");
    for round in rounds {
        assert!(round["done"].as_f64().unwrap() > 0.0, "{round}");
        let cell = round["cell"].as_str().unwrap();
        let is_given = cell.starts_with("rate/") || cell.starts_with("paced/");
        assert_eq!(round["offered"].as_f64().is_some_and(|offered| offered > 0.0), is_given, "{round}");
    }
    assert_eq!(processes(out.path()), Vec::<String>::new());
}

#[test]
fn memory_of_idle_connections_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let (printed, progress, ok) = run(&["--only", "rest/", "--rounds", "1", "--with", "millstream"], out.path());
    assert!(ok, "{printed}{progress}");
    if printed.contains("need a higher limit of descriptors") {
        return;
    }
    let results: Value = serde_json::from_slice(&std::fs::read(file(out.path(), "json").unwrap()).unwrap()).unwrap();
    let round = &results["rounds"][0];
    assert_eq!(round["done"].as_f64(), Some(5000.0), "{printed}{progress}");
    assert!(round["pss_kib"].as_u64() > round["first_pss_kib"].as_u64(), "{round}");
}

#[test]
fn an_mtu_is_set_or_refused_with_a_remedy() {
    let out = tempfile::tempdir().unwrap();
    let options = ["--mtu", "1500", "--only", "json/1", "--seconds", "0.1", "--rounds", "1", "--no-calls"];
    let (printed, error, ok) = run(&[&options[..], &["--with", "millstream"]].concat(), out.path());
    if !ok {
        // It needs root, two programs, and a kernel that permits it.
        let remedies = ["needs root", "is not installed; install", "run this where it is permitted"];
        assert!(remedies.iter().any(|remedy| error.contains(remedy)), "{printed}{error}");
        return;
    }
    assert!(printed.contains("The MTU of the loopback device was 1500"), "{printed}");
    let results: Value = serde_json::from_slice(&std::fs::read(file(out.path(), "json").unwrap()).unwrap()).unwrap();
    assert_eq!(results["header"]["machine"]["mtu"], "1500", "{results}");
    assert_eq!(results["rounds"].as_array().unwrap().len(), 1, "{printed}{error}");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), signal).unwrap();
}

fn long(out: &Path) -> Child {
    let child = versus(&["--quick", "--only", "tokens/64", "--seconds", "60", "--no-calls"], out).spawn().unwrap();
    // Past the moment when it still is the program that becomes the server.
    wait_for("a server", || processes(out).iter().any(|line| !line.contains("\0exec\0")));
    child
}

#[test]
fn ctrl_c_ends_the_servers_and_keeps_the_results() {
    let out = tempfile::tempdir().unwrap();
    let child = long(out.path());
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; continue with --resume"), "{said}");
    assert_eq!(processes(out.path()), Vec::<String>::new());
    assert!(file(out.path(), "html").is_some());
}

#[test]
fn servers_end_with_a_program_that_is_killed() {
    let out = tempfile::tempdir().unwrap();
    let mut child = long(out.path());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_for("the end of the servers", || processes(out.path()).is_empty());
}

#[test]
fn a_list_says_how_long_a_run_takes() {
    let out = tempfile::tempdir().unwrap();
    let (printed, error, ok) = run(&["--list", "--quick"], out.path());
    assert!(ok && printed.contains("tokens/1000"), "{printed}{error}");
    assert!(printed.contains("18 cells, 5 rounds of 0.4 s: about "), "{printed}");
    let (printed, error, ok) = run(&["--list", "--only", "rest/"], out.path());
    assert!(ok && printed.contains("(rounds of 13 s)"), "{printed}{error}");
}

#[test]
fn wrong_options_are_refused() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (&["--only", "nothing/at/all"][..], "no cell has such a name"),
        (&["--with", "apache"], "--with apache: there are millstream"),
        (&["--seconds", "0"], "0.05 to 600"),
        (&["--rounds", "0"], "1..=1000"),
        (&["--mtu", "100"], "576..=65536"),
        (&["--resume", "/nonexistent"], "/nonexistent"),
    ] {
        let (printed, error, ok) = run(arguments, out.path());
        assert!(!ok && error.contains(says), "{arguments:?}: {printed}{error}");
    }
}
