//! A network namespace of its own, whose loopback device has a given MTU.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts this program again in a network namespace of its own, where this sets the MTU of the loopback device. Servers
/// and load inherit the namespace, and the machine's own device stays as it is. `inside` says that this is the program
/// that was started again.
pub(super) fn enter(mtu: u32, inside: bool) -> Result<(), String> {
    if inside { set(mtu) } else { Err(start_again()?) }
}

/// Returns only if that fails.
fn start_again() -> Result<String, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("--mtu: a network namespace needs root; run this as root, or without --mtu".to_owned());
    }
    call("ip", &["-Version"], "iproute2")?;
    // Not every root may: a container can forbid it.
    call("unshare", &["--net", "true"], "util-linux")?;
    let this = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
    let mut arguments: Vec<OsString> = vec!["--net".into(), "--".into(), this.into(), "--in-namespace".into()];
    arguments.extend(std::env::args_os().skip(1));
    Ok(format!("--mtu: unshare: {}", Command::new("unshare").args(arguments).exec()))
}

fn set(mtu: u32) -> Result<(), String> {
    call("ip", &["link", "set", "dev", "lo", "mtu", &mtu.to_string(), "up"], "iproute2")?;
    let shown = call("ip", &["-oneline", "link", "show", "dev", "lo"], "iproute2")?;
    match parse(&shown) {
        Some(is) if is == mtu => Ok(()),
        _ => Err(format!("--mtu {mtu}: the loopback device has not taken it: {}", shown.trim())),
    }
}

/// Runs a program to its end. Returns what it prints.
fn call(program: &str, arguments: &[&str], package: &str) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!("--mtu: {program} is not installed; install {package}, or leave --mtu out"),
        _ => format!("--mtu: {program}: {e}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("--mtu: {program} {}: {}; run this where it is permitted", arguments.join(" "), said.trim()))
}

/// Returns the MTU in a line of `ip -oneline link show`.
fn parse(line: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "mtu")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_read_and_what_is_missing_is_named() {
        let line = "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 1500 qdisc noqueue state UNKNOWN mode DEFAULT group default\\";
        assert_eq!(parse(line), Some(1500));
        assert_eq!(parse("1: lo: <LOOPBACK> mtu"), None);
        let error = call("ip-that-is-nowhere", &[], "iproute2").unwrap_err();
        assert!(error.contains("ip-that-is-nowhere is not installed; install iproute2"), "{error}");
        let error = call("false", &["link"], "coreutils").unwrap_err();
        assert!(error.starts_with("--mtu: false link: "), "{error}");
    }
}
