//! A file copied to a new one, both in the page cache.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use crate::child;
use crate::options::Options;
use crate::table::{Row, Section, Series};
use crate::ways::{Job, Way};

fn path(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| io::Error::other(format!("{}: not a name in UTF-8", path.display())))
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut buffers = [vec![0; 1 << 20], vec![0; 1 << 20]];
    loop {
        let n = one.read(&mut buffers[0])?;
        if n == 0 {
            return Ok(true);
        }
        other.read_exact(&mut buffers[1][..n])?;
        if buffers[0][..n] != buffers[1][..n] {
            return Ok(false);
        }
    }
}

pub(crate) fn measure(options: &Options) -> io::Result<Section> {
    let dir = tempfile::tempdir()?;
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let mut file = File::create(&from)?;
    for chunk in 0..options.file_len() >> 20 {
        let words = (0..(1u64 << 20) / 8).map(|word| (chunk << 20 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        file.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
    }
    // Or the disk is busy with it while others are measured.
    file.sync_all()?;

    let ways = Way::of(Job::File);
    let mut series: Vec<Series<2>> = ways.iter().map(|_| Series::default()).collect();
    for _ in 0..options.rounds {
        for (way, series) in ways.iter().zip(&mut series) {
            let [wall, cpu] = child::copy(way, path(&from)?, path(&to)?)?.map(|time| time.as_secs_f64() * 1e3);
            if !same(&from, &to)? {
                return Err(io::Error::other(format!("{}: the copy is not like its original", way.name)));
            }
            fs::remove_file(&to)?;
            series.push([cpu, wall]);
        }
    }
    let rows = ways.iter().zip(&series).map(|(way, series)| {
        let [cpu, wall] = series.medians();
        Row { way, cpu, least: series.least()[0], notes: vec![format!("{wall:.1}")] }
    });
    let title = format!("file copy, {} MiB", options.file_len() >> 20);
    Ok(Section { title, unit: "ms", columns: &["ms in all"], rows: rows.collect() })
}
