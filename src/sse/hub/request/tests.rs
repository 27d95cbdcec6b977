//! Unit tests of `request`.

use super::*;

#[test]
fn ids_of_requests() {
    let id = |id: &str| Last::Id(id.to_owned());
    for (field, query, found) in [
        (None, None, Last::None),
        (None, Some("a=b"), Last::None),
        (None, Some("lastEventId="), Last::None),
        (None, Some("a=b&lastEventId=7-0"), id("7-0")),
        (None, Some("lastEventId=%C3%A9%20+%2B"), id("é  +")),
        (None, Some("lastEventId=%FF"), Last::Bad),
        (None, Some("xlastEventId=1"), Last::None),
        (Some(&b"7"[..]), Some("lastEventId=8"), id("7")),
        (Some("é".as_bytes()), None, id("é")),
        (Some(b"\xff"), Some("lastEventId=8"), Last::Bad),
        (Some(b""), Some("lastEventId=8"), Last::None),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(field) = field {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_bytes(field).unwrap());
        }
        assert_eq!(last_id(&headers, query), found, "{field:?} {query:?}");
    }
}
