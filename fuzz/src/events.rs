//! A reader of event streams by the rules of the HTML standard.

/// An event as a browser sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub name: String,
    pub data: String,
    pub id: String,
}

/// Reads a stream from all of its bytes.
///
/// # Panics
///
/// If it is not UTF-8, ends inside a line, or has a field that no event has.
pub fn read(stream: &[u8]) -> Vec<Seen> {
    let text = std::str::from_utf8(stream).expect("a stream is UTF-8");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let (mut seen, mut next, mut data) = (Vec::new(), Seen::default(), None::<String>);
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What follows the last line break is incomplete.
    assert_eq!(lines.pop(), Some(""), "a line is cut");
    for line in lines {
        let (field, value) = match line.split_once(':') {
            Some((field, value)) => (field, value.strip_prefix(' ').unwrap_or(value)),
            None => (line, ""),
        };
        match field {
            "" if line.is_empty() => {
                if let Some(data) = data.take() {
                    let data = data.strip_suffix('\n').unwrap_or(&data).to_owned();
                    seen.push(Seen { name: next.name.clone(), data, id: next.id.clone() });
                }
                next.name.clear();
            }
            "event" => next.name = value.to_owned(),
            "data" => *data.get_or_insert_default() += &format!("{value}\n"),
            "id" if !value.contains('\0') => next.id = value.to_owned(),
            "" | "id" | "retry" => {}
            other => panic!("the field {other:?}"),
        }
    }
    seen
}
