//! Opening a bucket of S3, or of a store that speaks its protocol.
//!
//! The address names bucket and prefix; endpoint, region and credentials come from the environment, by the names that
//! other programs use for them, so that no secret is ever part of a command line, a log or a stored name. Requests
//! over plain HTTP can be read and replayed by every machine on the way, so plain HTTP is used only to this machine,
//! unless it is allowed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use crate::error::BlobError;
use crate::http_client::{Connector, Patience};

/// What the caller repeats for ever is repeated here only as often as hides a hiccup.
const RETRIES: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(30);

/// Opens `s3://bucket/prefix`, given the variables of the environment. Nothing is sent yet.
pub(crate) fn open(
    address: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Arc<dyn ObjectStore>, BlobError> {
    let refuse = |reason: String| BlobError::Address {
        address: address.to_owned(),
        reason,
    };
    let (bucket, prefix) = bucket_and_prefix(address).map_err(|reason| BlobError::Address {
        // It may hold a password.
        address: "s3://...".to_owned(),
        reason: reason.to_owned(),
    })?;
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables {
        // An empty variable is one that is not set.
        if name.starts_with("AWS_")
            && !value.is_empty()
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    let value = |key| builder.get_config_value(&key);
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint).or(value(AmazonS3ConfigKey::Endpoint));
    let allowed = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let tls = match &endpoint {
        Some(endpoint) => {
            needs_tls(endpoint, allowed.as_deref() == Some("true")).map_err(refuse)?
        }
        None => true,
    };
    let store = builder
        .with_bucket_name(bucket)
        .with_allow_http(!tls)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
        })
        .with_http_connector(Connector {
            patience: Patience::default(),
            tls,
        })
        .build()
        .map_err(|error| refuse(error.to_string()))?;
    Ok(match prefix {
        "" => Arc::new(store),
        prefix => Arc::new(PrefixStore::new(store, prefix)),
    })
}

fn bucket_and_prefix(address: &str) -> Result<(&str, &str), &'static str> {
    const FORM: &str = "write s3://bucket or s3://bucket/prefix; endpoint, region and credentials come from AWS_ENDPOINT_URL, \
                        AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    let rest = address.strip_prefix("s3://").ok_or(FORM)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let in_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let in_bucket =
        |byte: u8| in_bucket(byte) || matches!(byte, b'.' | b'_') || byte.is_ascii_uppercase();
    let in_prefix =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@' | b'%');
    let prefix = prefix.trim_end_matches('/');
    let is_good = (3..=63).contains(&bucket.len())
        && bucket.bytes().all(in_bucket)
        && prefix.bytes().all(in_prefix)
        && (prefix.is_empty()
            || prefix
                .split('/')
                .all(|part| !matches!(part, "" | "." | "..")));
    is_good.then_some((bucket, prefix)).ok_or(FORM)
}

/// Whether the endpoint is reached over TLS, or why it may not be used.
fn needs_tls(endpoint: &str, http_allowed: bool) -> Result<bool, String> {
    let uri: http::Uri = endpoint
        .parse()
        .map_err(|error| format!("its endpoint is no address: {error}"))?;
    let host = uri.host().unwrap_or_default();
    match uri.scheme_str() {
        Some("https") => Ok(true),
        Some("http") if http_allowed || is_this_machine(host) => Ok(false),
        Some("http") => Err(format!(
            "its endpoint http://{host} is on another machine and would be reached without encryption; use https, or \
             set AWS_ALLOW_HTTP=true if nobody else can be on the way"
        )),
        _ => Err("its endpoint must begin with https:// or http://".to_owned()),
    }
}

fn is_this_machine(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(address: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let keys = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush-hush"),
        ];
        let variables = keys.iter().chain(variables);
        let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
        open(address, variables)
            .map(|store| format!("{store} {store:?}"))
            .map_err(|error| error.to_string())
    }

    /// Promise: what the address and the environment say is what is used, or refused with what to do.
    #[test]
    fn an_address_is_a_bucket_and_a_prefix() {
        for good in [
            "s3://weir",
            "s3://weir/",
            "s3://weir-1.x/some/where",
            "s3://weir/some/where/",
        ] {
            opened(good, &[]).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for bad in [
            "s3://",
            "s3:///prefix",
            "s3://no",
            "s3://id:hush-hush@weir/prefix",
            "s3://weir/../other",
            "s3://weir//double",
            "s3://weir/prefix?secret=hush-hush",
        ] {
            let error = opened(bad, &[]).expect_err(bad);
            assert!(error.contains("s3://bucket/prefix"), "{error}");
            assert!(!error.contains("hush-hush"), "{error}");
        }
    }

    /// Promise: nothing goes over the network in the clear by accident.
    #[test]
    fn plain_http_is_for_this_machine_or_for_those_who_ask_for_it() {
        let at = |endpoint: &'static str| [("AWS_ENDPOINT_URL", endpoint)];
        for local in [
            "http://127.0.0.1:7070",
            "http://localhost:7070",
            "http://[::1]:7070",
            "https://far.example",
        ] {
            opened("s3://weir/x", &at(local)).unwrap_or_else(|error| panic!("{local}: {error}"));
        }
        for far in [
            "http://far.example",
            "http://10.0.0.1:9000",
            "http://127.0.0.1.far.example",
        ] {
            let error = opened("s3://weir/x", &at(far)).expect_err(far);
            assert!(error.contains("AWS_ALLOW_HTTP"), "{error}");
            let allowed = [at(far)[0], ("AWS_ALLOW_HTTP", "true")];
            opened("s3://weir/x", &allowed).expect("allowed");
        }
        // The endpoint for S3 alone counts before the one for everything.
        let both = [
            at("https://far.example")[0],
            ("AWS_ENDPOINT_URL_S3", "http://far.example"),
        ];
        assert!(opened("s3://weir/x", &both).is_err());
        assert!(opened("s3://weir/x", &at("far.example:9000")).is_err());
    }

    /// Promise: secrets are not in what is printed of a store.
    #[test]
    fn no_secret_is_printed() {
        let printed = opened("s3://weir/x", &[("AWS_SESSION_TOKEN", "hush-hush")]).expect("store");
        assert!(!printed.contains("hush-hush"), "{printed}");
    }
}
