//! One table of all programs. Cargo runs them in the order of `Cargo.toml`, and this one last.
//!
//! `cargo bench --bench summary` prints it again.

mod common;

use common::contest::{Case, Measured};
use common::options::options;
use common::record::{Record, read, table, this_run};

/// Returns the names of the other programs, in their order.
fn programs() -> Vec<&'static str> {
    let manifest = include_str!("../Cargo.toml");
    let benches = manifest.split("[[bench]]\nname = \"").skip(1);
    benches.filter_map(|bench| bench.split('"').next()).filter(|name| *name != env!("CARGO_CRATE_NAME")).collect()
}

/// Checks the table of known results, also after a round trip through JSON.
fn check() {
    let measured =
        |name: &str, cpu: [f64; 3]| Measured { name: name.to_owned(), cpu: cpu.into(), ..Measured::default() };
    let contenders = vec![
        measured("slow rival", [9.0, 9.0, 9.0]),
        measured("rival", [4.0, 6.0, 5.0]),
        measured("millstream", [1.0, 3.0, 2.0]),
        measured("floor, nothing", [1.0, 1.0, 1.0]),
    ];
    let record = Record::new("program", &Case::new("case", "CPU us/unit", 1), contenders);
    let (ours, rival, floor) = record.sides();
    let (rival, floor) = (rival.unwrap(), floor.unwrap());
    assert_eq!((ours.value, &*rival.name, rival.value, floor.ratio), (2.0, "rival", 5.0, 2.0));
    // The ratios of the rounds are 0.25, 0.5 and 0.4.
    assert_eq!(rival.ratio, 0.4);
    assert!((rival.spread - 0.0625 / 0.4).abs() < 1e-9, "{}", rival.spread);
    let printed = table(std::slice::from_ref(&record));
    assert!(printed.contains("better") && printed.contains("1 better, 0 even, 0 worse, of 1 cases."), "{printed}");
    assert_eq!(table(&[Record::from_json(&record.to_json().to_string()).unwrap()]), printed);
}

fn main() {
    let options = options();
    let (this, programs) = (this_run(), programs());
    assert!(programs.len() > 1, "no programs found in Cargo.toml");
    if options.list {
        return;
    }
    if options.test {
        check();
        println!("{} programs, no table: figures of a test run mean nothing", programs.len());
        return;
    }
    let mut records: Vec<Record> = Vec::new();
    let mut missing = Vec::new();
    for program in &programs {
        let of_program = read(program);
        if of_program.is_empty() {
            missing.push(*program);
        }
        records.extend(of_program);
    }
    // All are from older runs if this program runs alone.
    let has_this = records.iter().any(|record| record.run == this);
    let hidden = records.len();
    if has_this && options.filter.is_some() {
        records.retain(|record| record.run == this);
    }
    let hidden = hidden - records.len();
    if !records.is_empty() {
        println!("\n{}", table(&records));
    }
    if hidden > 0 {
        println!("{hidden} cases of older runs are left out; `cargo bench --bench summary` prints all.");
    }
    let older = records.iter().filter(|record| record.run != this).count();
    if older > 0 {
        println!("{older} of {} cases are from older runs, as marked.", records.len());
    }
    if records.iter().any(|record| record.quick) {
        println!("Some are from a run with --quick: their spread is not reliable.");
    }
    if !missing.is_empty() {
        println!("Missing, never run: {}.", missing.join(", "));
    }
}
