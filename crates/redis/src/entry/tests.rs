//! Unit tests of `entry`.

use super::*;

fn reply(id: &str, command: &Cmd) -> Value {
    let text = |text: &[u8]| Value::BulkString(text.to_vec());
    let arguments = command.args_iter().map(|argument| match argument {
        redis::Arg::Simple(bytes) => text(bytes),
        _ => panic!("the argument is missing"),
    });
    Value::Array(vec![Value::Array(vec![text(id.as_bytes()), Value::Array(arguments.collect())])])
}

#[test]
fn what_is_written_is_read() {
    let long = "x".repeat(100_000);
    for event in [
        Event::new(),
        Event::new().data(""),
        Event::new().data("a\r\nb\0é").event("token"),
        Event::new().retry(Duration::from_millis(u64::MAX)),
        Event::new().data(long).retry(Duration::from_millis(1500)).comment("c\nd"),
    ] {
        let stamp = Stamp { writer: 0xab, number: u64::MAX };
        let mut command = Cmd::new();
        Fields::new(&event).write(stamp, &mut command);
        let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
        assert!(read.bytes >= command.args_iter().map(|_| 4).sum::<usize>(), "{}", read.bytes);
        assert_eq!((read.id.to_string(), read.stamp, read.event), ("7-1".to_owned(), Some(stamp), event));
    }
}

#[test]
fn a_retry_that_is_too_long_is_the_longest() {
    let mut command = Cmd::new();
    Fields::new(&Event::new().retry(Duration::MAX)).write(Stamp { writer: 1, number: 1 }, &mut command);
    let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
    assert_eq!(read.event.parts().retry, Some(Duration::from_millis(u64::MAX)));
}

#[test]
fn what_others_have_written_is_an_event_as_well() {
    let mut command = Cmd::new();
    command.arg("data").arg(b"\xff!").arg("retry").arg("soon").arg("more").arg("of it").arg("number").arg("7");
    let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
    assert_eq!((read.stamp, read.event), (None, Event::new().data("\u{fffd}!")));
    assert!(Entry::all(reply("seven", &command)).is_err());
}
