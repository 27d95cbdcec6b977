//! Names and ids of queries, forms and JSON.

use http::HeaderValue;

use super::*;

fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

fn asked(names: &[&str], last: Option<&str>) -> Asked {
    let last = last.map_or(LastId::None, |last| LastId::Id(last.to_owned()));
    Asked { names: names.iter().map(|name| (*name).to_owned()).collect(), last }
}

#[test]
fn a_query_has_names_and_an_id() {
    let of = |query: &str| Asked::of_pairs(&HeaderMap::new(), query.as_bytes());
    assert_eq!(of("topic=a&topic=b%2Cc&x=1&topic=a"), asked(&["a", "b,c"], None));
    assert_eq!(of("topic=a+b&lastEventId=a%2520b%3D1&lastEventId=2"), asked(&["a b"], Some("a%20b=1")));
    assert_eq!(of(""), asked(&[], None));
    assert_eq!(of("topic"), asked(&[""], None));
    assert_eq!(of("lastEventId="), asked(&[], None));
}

#[test]
fn the_header_counts_more() {
    let of = |value: &'static str| Asked::of_pairs(&headers(&[(LAST_EVENT_ID, value)]), b"topic=a&lastEventId=query");
    assert_eq!(of("header"), asked(&["a"], Some("header")));
    assert_eq!(of(""), asked(&["a"], None));
    let mut fields = HeaderMap::new();
    fields.insert(LAST_EVENT_ID, HeaderValue::from_bytes(b"a=\xff").unwrap());
    assert_eq!(Asked::of_pairs(&fields, b"").last, LastId::Bad);
}

#[test]
fn a_body_is_a_form_or_json() {
    let media = |value: &'static str| Media::of(&headers(&[(CONTENT_TYPE, value)]));
    assert_eq!(media("application/json"), Some(Media::Json));
    assert_eq!(media("Application/JSON ; charset=utf-8"), Some(Media::Json));
    assert_eq!(media("application/x-www-form-urlencoded"), Some(Media::Form));
    assert_eq!([media("text/plain"), media("application/json5"), Media::of(&HeaderMap::new())], [None; 3]);

    let none = HeaderMap::new();
    let form = Asked::of_body(&none, Media::Form, b"topic=a&lastEventId=1");
    assert_eq!(form, Ok(asked(&["a"], Some("1"))));
    let json = |body: &str| Asked::of_body(&none, Media::Json, body.as_bytes());
    assert_eq!(json(r#"{"topics":["a","b","a"],"lastEventId":"a=1"}"#), Ok(asked(&["a", "b"], Some("a=1"))));
    assert_eq!(json(r#"{"topics":["\u00e4"],"lastEventId":null,"more":{}}"#), Ok(asked(&["ä"], None)));
    assert_eq!(json(r#"{"topics":[]}"#), Ok(asked(&[], None)));
    let deep = "[".repeat(100_000);
    for malformed in
        ["", "[]", "{", "{}", r#"{"topics":"a"}"#, r#"{"topics":[1]}"#, r#"{"topics":["a"],"lastEventId":1}"#, &deep]
    {
        assert_eq!(json(malformed), Err(Refusal::MalformedBody), "{malformed:.20}");
    }
    let header =
        Asked::of_body(&headers(&[(LAST_EVENT_ID, "h")]), Media::Json, br#"{"topics":["a"],"lastEventId":"b"}"#);
    assert_eq!(header, Ok(asked(&["a"], Some("h"))));
}
