//! The process is killed, and files are damaged: the confirmed appends are there, and nothing else.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Answer, Client, HANGS, Server, pause, refused};

mod support;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const WRITERS: usize = 8;
const HEADER: usize = 20;

/// Returns the lines of a stream after the writer that wrote them. Fails if one is not whole, twice or out of order.
fn counts(read: &[u8], scale: usize) -> Vec<usize> {
    let mut counts = vec![0; WRITERS];
    for line in std::str::from_utf8(read).unwrap().split_terminator('\n') {
        let mut parts = line.split(' ');
        let (writer, number) = (parts.next().unwrap(), parts.next().unwrap());
        let (writer, number): (usize, usize) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, counts[writer], "the next line of writer {writer}");
        assert_eq!(parts.next().map(str::len), Some(size(number) * scale), "line {number} of writer {writer}");
        counts[writer] += 1;
    }
    assert!(read.last().is_none_or(|&last| last == b'\n'), "half a line");
    counts
}

fn size(number: usize) -> usize {
    number * 37 % 900
}

#[test]
fn appends_survive_kills() {
    kill_writers(1);
}

#[test]
fn appends_survive_kills_while_segments_are_full() {
    kill_writers(150);
}

/// Kills the server six times while writers append lines of up to `900 * scale` bytes to three streams.
fn kill_writers(scale: usize) {
    let dir = tempfile::tempdir().unwrap();
    let streams = ["/one", "/two", "/three"];
    let mut confirmed = [[0; WRITERS]; 3];
    for round in 0..6 {
        let mut server = Server::start(dir.path());
        for (stream, confirmed) in streams.iter().zip(&mut confirmed) {
            if round == 0 {
                assert_eq!(server.ask("PUT", stream, &[TEXT], b"").status, 201);
            }
            let found = counts(&server.read(stream), scale);
            for (found, confirmed) in found.into_iter().zip(confirmed) {
                // One append of each writer was on its way.
                assert!((*confirmed..=*confirmed + 1).contains(&found), "round {round}: {found}, not {confirmed}");
                *confirmed = found;
            }
        }
        let (ended, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        let address = server.address;
        thread::scope(|scope| {
            let mut started = Vec::new();
            for (stream, confirmed) in streams.iter().zip(&mut confirmed) {
                for (writer, confirmed) in confirmed.iter_mut().enumerate() {
                    let (ended, made) = (&ended, &made);
                    let mut client = Client::new(address);
                    started.push(scope.spawn(move || {
                        while !ended.load(Ordering::Relaxed) {
                            let line = format!("{writer} {confirmed} {}\n", "x".repeat(size(*confirmed) * scale));
                            let Some(answer) = client.ask("POST", stream, &[TEXT], line.as_bytes()) else { break };
                            assert_eq!(answer.status, 204);
                            *confirmed += 1;
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                    }));
                }
            }
            pause(Duration::from_millis(150 + 130 * round));
            // On a slow machine too, several of each writer.
            let since = Instant::now();
            while made.load(Ordering::Relaxed) < 5 * 3 * WRITERS {
                assert!(since.elapsed() < HANGS, "the writers are stuck");
                pause(Duration::from_millis(1));
            }
            server.kill();
            ended.store(true, Ordering::Relaxed);
        });
    }
}

/// A stream of lines, which is deleted after the last line and created again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lines {
    generation: usize,
    lines: usize,
}

impl Lines {
    const MAX: usize = 3;

    fn next(self) -> Self {
        match self.lines {
            Self::MAX => Self { generation: self.generation + 1, lines: 0 },
            lines => Self { lines: lines + 1, ..self },
        }
    }

    fn text(self) -> String {
        (0..self.lines).map(|n| format!("{} {n} {}\n", self.generation, "x".repeat(30_000))).collect()
    }

    fn is(self, answer: &Answer) -> bool {
        answer.status == if self.lines == 0 { 404 } else { 200 }
            && (self.lines == 0 || answer.body == self.text().as_bytes())
    }
}

/// No stream is long, so only checkpoints move bytes into files, while streams are created and deleted.
#[test]
fn streams_of_few_bytes_survive_kills_during_checkpoints() {
    const STREAMS: usize = 160;
    let dir = tempfile::tempdir().unwrap();
    let mut streams = vec![Lines { generation: 0, lines: 0 }; STREAMS];
    for round in 0..5 {
        let mut server = Server::start(dir.path());
        for (n, state) in streams.iter_mut().enumerate() {
            let answer = server.ask("GET", &format!("/{n}"), &[], b"");
            // One request of each writer was on its way.
            let found = [*state, state.next()].into_iter().find(|state| state.is(&answer));
            *state =
                found.unwrap_or_else(|| panic!("round {round}: /{n} has {} bytes, not {state:?}", answer.body.len()));
        }
        let (made, address) = (AtomicUsize::new(0), server.address);
        thread::scope(|scope| {
            for (writer, streams) in streams.chunks_mut(STREAMS / WRITERS).enumerate() {
                let (made, mut client) = (&made, Client::new(address));
                scope.spawn(move || {
                    for n in (0..streams.len()).cycle() {
                        let (path, state) = (format!("/{}", writer * (STREAMS / WRITERS) + n), &mut streams[n]);
                        let text = state.next().text().split_off(state.text().len().min(state.next().text().len()));
                        let (method, status) = match state.lines {
                            0 => ("PUT", 201),
                            Lines::MAX => ("DELETE", 204),
                            _ => ("POST", 204),
                        };
                        let Some(answer) = client.ask(method, &path, &[TEXT], text.as_bytes()) else { return };
                        assert_eq!(answer.status, status, "{method} {path}");
                        *state = state.next();
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // The journal has 32 MiB.
            while made.load(Ordering::Relaxed) < 1800 + 250 * round {
                pause(Duration::from_millis(1));
            }
            server.kill();
        });
    }
}

/// Starts a server with a stream, and makes appends that are each a commit. Returns the segment with them.
fn killed(dir: &Path, appends: &[&str]) -> PathBuf {
    let mut server = Server::start(dir);
    assert_eq!(server.ask("PUT", "/s", &[TEXT], b"").status, 201);
    for append in appends {
        assert_eq!(server.ask("POST", "/s", &[TEXT], append.as_bytes()).status, 204);
    }
    server.kill();
    dir.join("journal-0")
}

/// Returns the place of the record that has these bytes at its end.
fn record_of(segment: &Path, data: &str) -> (u64, u64) {
    let bytes = fs::read(segment).unwrap();
    let end = bytes.windows(data.len()).position(|window| window == data.as_bytes()).unwrap() + data.len();
    let start = (0..end - HEADER).rev().find(|&at| {
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[at + 17..at + 20] == bytes[17..20] && at + HEADER + len == end
    });
    (start.unwrap() as u64, end as u64)
}

#[test]
fn a_torn_end_is_no_append() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "second", "third"]);
    let (start, end) = record_of(&segment, "third");
    for cut in [start + 3, end - 1] {
        // As after a power cut: the rest of the segment has its old bytes.
        let file = OpenOptions::new().write(true).open(&segment).unwrap();
        file.write_all_at(&vec![0; (end - cut) as usize], cut).unwrap();
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(dir.path()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let server = Server::start(copy.path());
        assert_eq!(server.read("/s"), b"firstsecond");
        assert_eq!(server.ask("POST", "/s", &[TEXT], b"!").status, 204);
        assert_eq!(server.read("/s"), b"firstsecond!");
    }
}

#[test]
fn records_of_an_earlier_process_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "lost!", "never confirmed"]);
    let file = OpenOptions::new().write(true).read(true).open(&segment).unwrap();
    // The second and the third append were one commit. A power cut has lost both, as far as the next process finds.
    let (start, _) = record_of(&segment, "lost!");
    let (last, end) = record_of(&segment, "never confirmed");
    let mut record = vec![0; (end - last) as usize];
    file.read_exact_at(&mut record, last).unwrap();
    file.write_all_at(&vec![0; (end - start) as usize], start).unwrap();
    // Not the first of its commit. A checksum changes by the same bits whatever its salt is.
    let crc = |record: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..]);
    let before = crc(&record) ^ u32::from_le_bytes(record[4..8].try_into().unwrap());
    record[16] = 0;
    let after = crc(&record) ^ before;
    record[4..8].copy_from_slice(&after.to_le_bytes());
    let mut server = Server::start(dir.path());
    assert_eq!(server.read("/s"), b"first");
    assert_eq!(server.ask("POST", "/s", &[TEXT], b"lost!").status, 204, "the client tries again");
    server.kill();
    // The old record is behind the new one, and would continue it.
    let (_, end) = record_of(&segment, "lost!");
    file.write_all_at(&record, end).unwrap();
    assert_eq!(Server::start(dir.path()).read("/s"), b"firstlost!");
}

#[test]
fn data_in_the_form_of_a_record_is_no_record() {
    let other = tempfile::tempdir().unwrap();
    let mut record = {
        let segment = killed(other.path(), &["a", "b", "c", "d", "e", "record of another store"]);
        let (start, end) = record_of(&segment, "record of another store");
        fs::read(&segment).unwrap()[start as usize..end as usize].to_vec()
    };
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"");
    server.ask("POST", "/s", &[TEXT], b"first");
    // Its checksum has another salt, even if the mark is guessed.
    let segment = dir.path().join("journal-0");
    record[17..20].copy_from_slice(&fs::read(&segment).unwrap()[17..20]);
    server.ask("POST", "/s", &[TEXT], &[&record[..], b"end"].concat());
    server.kill();
    // The record around it is torn.
    let bytes = fs::read(&segment).unwrap();
    let inside = bytes.windows(record.len()).position(|window| window == record).unwrap();
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"END", (inside + record.len()) as u64).unwrap();
    assert_eq!(Server::start(dir.path()).read("/s"), b"first");
}

#[test]
fn damage_before_confirmed_appends_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "second", "third"]);
    let (start, _) = record_of(&segment, "second");
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"?", start + 30).unwrap();
    let text = refused(dir.path());
    assert!(text.contains("damaged") && text.contains("journal-0"), "{text}");
}

#[test]
fn a_file_that_lost_bytes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"bytes");
    server.stop();
    // The opening moves them into the file.
    Server::start(dir.path()).stop();
    let file = fs::read_dir(dir.path().join("data")).unwrap().next().unwrap().unwrap().path();
    OpenOptions::new().write(true).open(file).unwrap().set_len(2).unwrap();
    let text = refused(dir.path());
    assert!(text.contains("has 2 bytes, but 5 were confirmed"), "{text}");
}

#[test]
fn headers_of_records_in_the_data_do_not_delay_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"");
    // Each says that a record of 1 MiB follows.
    let header = [&(1_u32 << 20).to_le_bytes()[..], b"CRC ", &(1_u64 << 33).to_le_bytes(), b"\x01DS3"].concat();
    let body = header.repeat((1 << 20) / HEADER);
    for _ in 0..7 {
        assert_eq!(server.ask("POST", "/s", &[TEXT], &body).status, 204);
    }
    server.kill();
    // The next process begins its journal before them, so the one after it searches them.
    server = Server::start(dir.path());
    assert_eq!(server.ask("POST", "/s", &[TEXT], b"!").status, 204);
    server.kill();
    assert!(Server::start(dir.path()).read("/s") == [&body.repeat(7)[..], b"!"].concat());
}

#[test]
fn an_earlier_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Server::start(dir.path()).stop();
    let snapshot = OpenOptions::new().write(true).open(dir.path().join("snapshot")).unwrap();
    snapshot.write_all_at(b"DS1", 17).unwrap();
    let text = refused(dir.path());
    assert!(text.contains("an earlier version") && text.contains("snapshot"), "{text}");
}

#[test]
fn a_flipped_bit_in_a_file_is_an_error() {
    const BLOCK: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let text: Vec<u8> = (0..BLOCK * 2 + 100).map(|n| b'a' + (n % 23) as u8).collect();
    server.ask("PUT", "/s", &[TEXT], &text[..1000]);
    server.ask("POST", "/s", &[TEXT], &text[1000..]);
    server.ask("PUT", "/fork", &[("stream-forked-from", "/s")], b"!");
    server.stop();
    // The opening moves the bytes into files.
    Server::start(dir.path()).stop();
    let path = dir.path().join("data/0000000000000000");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // Behind the first block of an answer, damage ends it before the block.
    let (refused, cut) = (Some(500), None);
    for (flipped, expected) in [(0, [refused, Some(200)]), (BLOCK + 7, [cut, refused]), (text.len() - 1, [cut, cut])] {
        file.write_all_at(&[text[flipped] ^ 1], flipped as u64).unwrap();
        let errors = dir.path().join("errors");
        let mut server = Server::start_with(dir.path(), File::create(&errors).unwrap().into());
        for (start, expected) in [0, BLOCK].into_iter().zip(expected) {
            for stream in ["/s", "/fork"] {
                let path = format!("{stream}?offset=0000000000000000_{start:016}");
                let answer = Client::new(server.address).ask("GET", &path, &[], b"");
                assert_eq!(answer.map(|answer| answer.status), expected, "{flipped}: {path}");
            }
        }
        let told = fs::read_to_string(&errors).unwrap();
        assert!(told.contains("damaged") && told.contains(path.to_str().unwrap()), "{told}");
        // Damaged bytes are not taken for good when more is added to their block.
        assert_eq!(server.ask("POST", "/s", &[TEXT], b"more").status, 204);
        server.kill();
        file.write_all_at(&text[flipped..=flipped], flipped as u64).unwrap();
        server = Server::start(dir.path());
        assert!(server.read("/s").starts_with(&text) && server.read("/fork") == [&text[..], b"!"].concat());
        server.stop();
    }
}

#[test]
fn without_space_streams_can_be_read_and_deleted_until_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/good", &[TEXT], b"good");
    // A checkpoint fails as on a full disk: these files cannot be written.
    let files = [1, 2].map(|id| dir.path().join(format!("data/{id:016x}")));
    for (file, stream) in files.iter().zip(["/bad", "/worse"]) {
        fs::create_dir(file).unwrap();
        assert_eq!(server.ask("PUT", stream, &[TEXT], b"bad").status, 201);
    }
    for deleted in ["/bad", "/worse"] {
        server.kill();
        server = Server::start(dir.path());
        assert_eq!((server.read("/good"), server.read("/worse")), (b"good".to_vec(), b"bad".to_vec()));
        assert_eq!(server.ask("POST", "/good", &[TEXT], b"!").status, 507);
        assert_eq!(server.ask("PUT", "/new", &[TEXT], b"").status, 507);
        assert_eq!(server.ask("DELETE", deleted, &[], b"").status, 204);
        assert_eq!(server.ask("GET", "/bad", &[], b"").status, 404);
    }
    for _ in 0..600 {
        if server.ask("POST", "/good", &[TEXT], b"!").status == 204 {
            break;
        }
        pause(Duration::from_millis(100));
    }
    server.kill();
    files.iter().for_each(|file| fs::remove_dir(file).unwrap());
    server = Server::start(dir.path());
    assert_eq!(server.read("/good"), b"good!");
    assert_eq!(server.ask("GET", "/worse", &[], b"").status, 404);
}

#[test]
fn a_directory_has_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let _server = Server::start(dir.path());
    let text = refused(dir.path());
    assert!(text.contains("another process has it open"), "{text}");
}
