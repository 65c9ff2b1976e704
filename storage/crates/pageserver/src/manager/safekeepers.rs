//! Changes to the list of safekeepers from which a timeline gets its WAL.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use part_tls::Dialer;
use pg_types::{TenantId, TimelineId};
use token::OwnToken;
use tokio::sync::watch;

use super::TenantManager;
use crate::error::{Error, Result};
use crate::timeline::Timeline;
use crate::wal_source::SafekeeperSource;
use crate::wal_source::WalSource;

/// Makes the WAL source of a timeline.
pub trait WalSources: Send + Sync + 'static {
    /// The source for a timeline whose safekeepers are what the receiver shows, `host:port`, now and later. `None`:
    /// no WAL is followed, ever.
    fn source(
        &self,
        tenant: TenantId,
        timeline: TimelineId,
        safekeepers: watch::Receiver<Vec<String>>,
    ) -> Option<Arc<dyn WalSource>>;
}

/// Sources that read from safekeepers under this name.
pub struct Safekeepers {
    /// Stable name of this pageserver, for which safekeepers keep WAL until it is ingested
    /// (`SafekeeperSource::reader`).
    pub reader: String,
    /// What safekeepers are shown.
    pub token: OwnToken,
    /// How they are connected to.
    pub dialer: Dialer,
}

impl WalSources for Safekeepers {
    fn source(
        &self,
        tenant: TenantId,
        timeline: TimelineId,
        safekeepers: watch::Receiver<Vec<String>>,
    ) -> Option<Arc<dyn WalSource>> {
        Some(Arc::new(SafekeeperSource {
            tenant,
            timeline,
            safekeepers,
            reader: self.reader.clone(),
            token: self.token.clone(),
            dialer: self.dialer.clone(),
        }))
    }
}

impl TenantManager {
    /// Gives a timeline other safekeepers to read from, `host:port`; durable, and in use, on return, for which it
    /// waits as long as the object store takes nothing. Fails with `BadRequest` for a list that is empty, names one
    /// twice or is not of addresses, and with `NotFound` without such a timeline; nothing has changed then. When it
    /// fails otherwise, either list may count until the request is repeated.
    pub async fn set_safekeepers(
        &self,
        tenant: TenantId,
        timeline: TimelineId,
        safekeepers: Vec<String>,
    ) -> Result<Arc<Timeline>> {
        check(&safekeepers)?;
        let tenant = self.tenant(tenant)?;
        let _one_at_a_time = tenant.changing.lock().await;
        let timeline = tenant.timeline(timeline)?;
        timeline.safekeepers().set(safekeepers).await?;
        Ok(timeline)
    }
}

fn check(safekeepers: &[String]) -> Result<()> {
    if safekeepers.is_empty() {
        let message = "a timeline needs one safekeeper at least to get its WAL from";
        return Err(Error::BadRequest(message.to_owned()));
    }
    let mut known = HashSet::new();
    for address in safekeepers {
        if !is_address(address) {
            return Err(Error::BadRequest(format!(
                "safekeeper {address:?} is not an address host:port, such as 127.0.0.1:7501"
            )));
        }
        if !known.insert(address.to_ascii_lowercase()) {
            return Err(Error::BadRequest(format!(
                "safekeeper {address:?} is named twice"
            )));
        }
    }
    Ok(())
}

/// Whether the text is a host name, an IPv4 address or an IPv6 address in brackets, and a port as one writes it.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_port = port
        .parse::<u16>()
        .is_ok_and(|number| number != 0 && number.to_string() == port);
    let is_in_brackets = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match is_in_brackets {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !host.is_empty() && host.bytes().all(is_allowed)
        }
    };
    is_port && is_host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["127.0.0.1:7501", "sk-1.example:1", "[::1]:65535", "a_b:80"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            ":7501",
            "host",
            "host:",
            "host:0",
            "host:07501",
            "host:65536",
            "host:x",
            "ho st:1",
            "::1:7501",
            "[::1:7501",
            "[host]:1",
            "http://host:1",
            "host:1/",
            "host:+1",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn a_list_is_of_different_safekeepers() {
        let check = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|it| (*it).to_owned()).collect();
            check(&list).map_err(|error| error.code())
        };
        assert_eq!(check(&["a:1", "a:2", "b:1"]), Ok(()));
        let refused = Err(("bad_request", 400));
        assert_eq!(check(&[]), refused);
        assert_eq!(check(&["a:1", "A:1"]), refused);
        assert_eq!(check(&["a:1", "b"]), refused);
    }
}
