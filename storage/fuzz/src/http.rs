//! What clients of SQL over HTTP send, and what computes answer them.

use sql_over_http::address;
use sql_over_http::answer::{Answer, Style, error};
use sql_over_http::request::{self, Body};

/// The bytes as a connection string, as a body, and as a compute's messages.
pub fn sql_over_http(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = address::parse(text)
    {
        assert!(!address.host.is_empty() && !address.startup.user().is_empty());
        for (name, value) in address.startup.parameters() {
            // They end with a zero byte where they are sent.
            assert!(!name.contains('\0') && !value.contains('\0'));
        }
    }
    let queries = match request::parse(data) {
        Ok(Body::One(query)) => vec![query],
        Ok(Body::Batch(queries)) => queries,
        Err(_) => Vec::new(),
    };
    for query in queries {
        assert!(!query.text.contains('\0'));
        let mut rest = query.parameters.encoded.as_slice();
        for _ in 0..query.parameters.count {
            let (length, after) = rest.split_first_chunk::<4>().expect("a length");
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            rest = &after[length..];
        }
        assert!(rest.is_empty());
    }
    answers(data);
}

/// The bytes as messages of a result, each with its length before it: what comes out is JSON.
fn answers(data: &[u8]) {
    let is_json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    assert!(is_json(&error(data)));
    for (raw, arrays) in [(true, true), (false, false)] {
        let mut out = Vec::new();
        let Ok(mut answer) = Answer::begin(&mut out, 1 << 20, Style { raw, arrays }) else {
            return;
        };
        let mut rest = data;
        let mut is_first = true;
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
            let (body, after) = after.split_at(length);
            rest = after;
            let taken = match std::mem::take(&mut is_first) {
                true => answer.columns(body),
                false => answer.row(body),
            };
            if taken.is_err() {
                return;
            }
        }
        if answer.end(b"SELECT 1\0").is_ok() {
            assert!(is_json(&out));
        }
    }
}
