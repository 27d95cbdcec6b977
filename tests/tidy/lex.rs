//! A minimal lexer that separates program text from comments and strings.

/// Returns the program text: comments, strings and characters blanked, everything else at its place.
pub(crate) fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => 1 + quoted(&rest[1..], '"'),
            'r' if is_raw_string(rest) && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => raw_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[skipped..];
        }
    }
    out
}

/// Returns the length of the (nested) comment at the start.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length up to and including the closing `quote`, with regard to backslashes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn is_raw_string(text: &str) -> bool {
    text[1..].trim_start_matches('#').starts_with('"') && !text.starts_with("r#r#")
}

fn raw_string(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let close = format!("\"{}", "#".repeat(hashes));
    let open = 1 + hashes + 1;
    text[open..].find(&close).map_or(text.len(), |at| open + at + close.len())
}

/// Returns the length of the character literal at the start; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut inner = text[1..].chars();
    match (inner.next(), inner.next()) {
        (Some('\\'), Some(escaped)) => 2 + escaped.len_utf8() + quoted(&text[2 + escaped.len_utf8()..], '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// Returns the positions of `word` as a whole word in `code`.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

pub(crate) fn ident(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns whether the program text contains `unsafe`.
pub(crate) fn is_unsafe(text: &str) -> bool {
    words(&code(text), "unsafe").next().is_some()
}

#[test]
fn comments_and_literals_are_not_code() {
    for text in ["// unsafe", "/* a /* b */ unsafe */", "\"un\\\" unsafe\"", "r#\"\" unsafe\"#", "'\\''; // unsafe"] {
        assert!(!is_unsafe(text), "{text}");
        assert_eq!(code(text).len(), text.len());
    }
    for text in ["unsafe {}", "/* */ unsafe {}", "'\"'; unsafe {}", "fn a<'b>() { unsafe {} }", "\"\\\\\"; unsafe {}"] {
        assert!(is_unsafe(text), "{text}");
    }
    assert!(!is_unsafe("#![deny(unsafe_code)]"));
}
