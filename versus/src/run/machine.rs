//! The machine, and how its CPUs are shared out between the server and the load.

use std::fs;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

/// Where the numbers come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) rustc: String,
    pub(crate) build: String,
    pub(crate) commit: String,
    /// Names and versions.
    pub(crate) crates: Vec<(String, String)>,
    pub(crate) congestion: String,
    /// Of the loopback device. Runs of older versions do not have it.
    #[serde(default)]
    pub(crate) mtu: String,
    pub(crate) governor: String,
    pub(crate) load: String,
}

const UNKNOWN: &str = "unknown";

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned())
}

/// Returns the first line that a program prints.
pub(super) fn says(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    // nginx prints its version to stderr.
    let text = [output.stdout, output.stderr].into_iter().find(|text| !text.is_empty())?;
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}

/// Returns the value of a field of a file of `name : value` lines.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().filter_map(|line| line.split_once(':')).find(|(field, _)| field.trim() == name);
    found.map_or_else(|| UNKNOWN.to_owned(), |(_, value)| value.trim().to_owned())
}

impl Machine {
    /// Takes the MTU of the loopback device, if this run has set it.
    pub(super) fn get(cpus: &Cpus, mtu: Option<u32>) -> Self {
        let dir = env!("CARGO_MANIFEST_DIR");
        let commit = says("git", &["-C", dir, "rev-parse", "--short=12", "HEAD"]).map(|commit| {
            let dirty = says("git", &["-C", dir, "status", "--porcelain", "--untracked-files=no"]).is_some();
            if dirty { format!("{commit}, with changes") } else { commit }
        });
        Self {
            date: says("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(|| UNKNOWN.to_owned()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: field("/proc/cpuinfo", "model name"),
            cores: cpus.count(),
            memory: field("/proc/meminfo", "MemTotal"),
            rustc: says("rustc", &["--version"]).unwrap_or_else(|| UNKNOWN.to_owned()),
            build: if cfg!(debug_assertions) { "debug: its figures mean nothing" } else { "release" }.to_owned(),
            commit: commit.unwrap_or_else(|| UNKNOWN.to_owned()),
            crates: crates(include_str!("../../../Cargo.lock")),
            congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            // The directory shows the devices of the namespace in which it was mounted.
            mtu: mtu.map_or_else(|| line("/sys/class/net/lo/mtu"), |mtu| mtu.to_string()),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load: line("/proc/loadavg"),
        }
    }

    /// Refuses to mix the results of two machines or builds.
    pub(super) fn same(&self, other: &Self) -> Result<(), String> {
        let all = |m: &Self| {
            [
                ("kernel", m.kernel.clone()),
                ("CPU", m.cpu.clone()),
                ("cores", m.cores.to_string()),
                ("commit", m.commit.clone()),
                ("build", m.build.clone()),
                ("an MTU of", m.mtu.clone()),
            ]
        };
        match all(self).into_iter().zip(all(other)).find(|(a, b)| a != b) {
            None => Ok(()),
            Some(((what, was), (_, is))) => Err(format!("the run has {what} {was}, here is {is}; start a new run")),
        }
    }
}

/// Crates that a server consists of.
const CRATES: [&str; 9] =
    ["millstream", "axum", "h2", "hyper", "hyper-util", "io-uring", "rustls", "tokio", "tower-http"];

fn crates(lock: &str) -> Vec<(String, String)> {
    let value = |line: &str, name: &str| Some(line.strip_prefix(name)?.trim_matches(&['"', ' ', '='][..]).to_owned());
    let mut found = Vec::new();
    let mut lines = lock.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = value(line, "name = ").filter(|name| CRATES.contains(&name.as_str()))
            && let Some(version) = lines.next().and_then(|line| value(line, "version = "))
        {
            found.push((name, version));
        }
    }
    found
}

/// Raises the limit of descriptors as far as this process may. Returns it.
pub(super) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// CPUs that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct Cpus(Vec<usize>);

impl Cpus {
    pub(super) fn get() -> Result<Self, String> {
        let set = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the CPUs of a server with so many workers, and those of the load: the others, or all if there are none.
    pub(super) fn share(&self, workers: u32) -> (Vec<usize>, Vec<usize>) {
        let (server, load) = self.0.split_at((workers as usize).min(self.0.len()));
        let load = if load.is_empty() { &self.0 } else { load };
        (server.to_vec(), load.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_never_goes_without_a_cpu() {
        let cpus = Cpus(vec![3, 5, 9]);
        assert_eq!(cpus.share(1), (vec![3], vec![5, 9]));
        assert_eq!(cpus.share(2), (vec![3, 5], vec![9]));
        assert_eq!(cpus.share(3), (vec![3, 5, 9], vec![3, 5, 9]));
        assert_eq!(cpus.share(4), (vec![3, 5, 9], vec![3, 5, 9]));
    }

    #[test]
    fn versions_come_from_the_lock() {
        let crates = crates(include_str!("../../../Cargo.lock"));
        assert!(crates.iter().any(|(name, version)| name == "hyper" && version.starts_with("1.")), "{crates:?}");
        assert!(crates.iter().any(|(name, _)| name == "millstream"));
    }

    #[test]
    fn another_machine_is_refused() {
        let here = Machine { kernel: "6.18".to_owned(), ..Machine::default() };
        assert!(here.same(&Machine { load: "9".to_owned(), ..here.clone() }).is_ok());
        let error = here.same(&Machine { kernel: "7.0".to_owned(), ..here.clone() }).unwrap_err();
        assert!(error.contains("kernel 6.18, here is 7.0"), "{error}");
    }
}
