//! The token that a part shows to others: a file that the control plane renews.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use axum::http::HeaderValue;

use crate::limits::LONGEST_TOKEN_BYTES;
use crate::watched::Watched;

/// A part's own token, or none where nobody asks for one.
#[derive(Clone, Default)]
pub struct OwnToken(Option<Source>);

#[derive(Clone)]
enum Source {
    File(Arc<Watched<Secret>>),
    Fixed(Arc<Secret>),
}

/// Shows nothing of itself.
struct Secret(String);

impl OwnToken {
    /// The token in `file`, read again when it changes; without a file there is none.
    pub fn open(file: Option<&Path>) -> anyhow::Result<OwnToken> {
        let Some(path) = file else {
            return Ok(OwnToken::default());
        };
        let watched = Watched::open(path, parse).context("the program's own token")?;
        Ok(OwnToken(Some(Source::File(watched))))
    }

    /// A token that is never renewed, for programs that end soon: `from` has it, and nothing else.
    pub fn read_once(mut from: impl std::io::Read) -> anyhow::Result<OwnToken> {
        let mut bytes = Vec::new();
        from.by_ref()
            .take(2 * LONGEST_TOKEN_BYTES as u64)
            .read_to_end(&mut bytes)
            .context("read the token")?;
        let secret = parse(&bytes).context("the program's own token")?;
        Ok(OwnToken(Some(Source::Fixed(Arc::new(secret)))))
    }

    /// The token as it is now.
    pub fn current(&self) -> Option<String> {
        self.0.as_ref().map(|source| match source {
            Source::File(file) => file.current().0.clone(),
            Source::Fixed(secret) => secret.0.clone(),
        })
    }

    /// The value of an `Authorization` header, marked as a secret.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let text = format!("Bearer {}", self.current()?);
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for OwnToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "OwnToken(..)",
            None => "OwnToken(none)",
        })
    }
}

fn parse(bytes: &[u8]) -> anyhow::Result<Secret> {
    let text = std::str::from_utf8(bytes).context("it is not text")?.trim();
    ensure!(!text.is_empty(), "it is empty");
    ensure!(
        text.len() <= LONGEST_TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic()),
        "it is no token"
    );
    Ok(Secret(text.to_owned()))
}
