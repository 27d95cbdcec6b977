//! A file that is written by offset: a sync waits for what was written before it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use millstream::fs::{File, OpenOptions};
use testkit::crash::{Confirm, FileItem, Tree};
use tokio::io::AsyncWriteExt;

use super::{new, old, recorded, tested};

#[derive(Clone, Copy, Debug)]
enum Work {
    Write,
    SetLen,
    Stream,
}

async fn perform(work: Work, file: &File) {
    match work {
        Work::Write => file.write_vectored_at(1000, [new(700).into(), new(5000).into()]).await.unwrap(),
        Work::SetLen => file.set_len(1500).await.unwrap(),
        Work::Stream => {
            let mut writer = file.writer();
            writer.write_all(&new(20_000)).await.unwrap();
            writer.flush().await.unwrap();
        }
    }
}

#[test]
fn bytes_and_length_of_a_file_are_there_after_its_sync() {
    tested(|| {
        for (work, data_only) in [
            (Work::Write, true),
            (Work::Write, false),
            (Work::SetLen, true),
            (Work::SetLen, false),
            (Work::Stream, true),
            (Work::Stream, false),
        ] {
            let before = old(9000);
            let run = |path: PathBuf, confirm: Confirm| async move {
                let file = OpenOptions::new().write(true).open(path.join("file")).await.unwrap();
                perform(work, &file).await;
                std::fs::set_permissions(path.join("file"), PermissionsExt::from_mode(0o604)).unwrap();
                if data_only { file.sync_data().await } else { file.sync().await }.unwrap();
                confirm.confirm(1);
            };
            let Some(history) = recorded(&Tree::new().file("file", before.clone()), run) else { return };
            let end = history.end();
            let after = end.get("file").expect("the file");
            let tried = history.crashes(|crash| {
                let found = crash.tree.get("file").expect("the file");
                let versions = [&before.contents, &after.contents];
                assert!(versions.map(Vec::len).contains(&found.contents.len()), "{crash}");
                let is_of_one =
                    |(at, byte): (usize, &u8)| *byte == 0 || versions.map(|v| v.get(at)).contains(&Some(byte));
                assert!(found.contents.iter().enumerate().all(is_of_one), "{crash}");
                let mode = if data_only { found.mode } else { after.mode };
                assert!([before.mode, after.mode].contains(&found.mode), "{crash}");
                assert!(crash.confirmed == 0 || *found == FileItem { mode, ..after.clone() }, "{crash}");
            });
            println!("{work:?}, data only: {data_only}: {tried}");
        }
    });
}
