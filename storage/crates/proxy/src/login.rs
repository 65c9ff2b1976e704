//! The login of a client by SCRAM, against the verifier that the directory has.
//!
//! A client whose endpoint, role or password is wrong sees the same messages in the same time as with a wrong password:
//! the verifier is made up where there is none, for known names too, so that both ways cost the same.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use pg_protocol::endpoint::{self, EndpointError, EndpointName};
use pg_protocol::messages::{self, Fatal};
use pg_protocol::scram::{
    LoginKeys, Mechanism, MockSecret, NONCE_BYTES, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramError,
    Server, Verifier,
};
use pg_protocol::startup::Startup;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::directory::Directory;
use crate::metrics;
use crate::packets::{self, Message, PacketError};
use crate::throttle::{Admission, Throttle};

/// An endpoint whose name ends so is one whose server connections are shared.
const POOLER: &str = "-pooler";
/// SCRAM's messages are short; Postgres takes no longer ones either.
const MOST_SASL_BYTES: u32 = 1024;

/// A login that succeeded.
#[derive(Debug)]
pub struct Login {
    /// The endpoint, without `-pooler`.
    pub endpoint: EndpointName,
    /// Whether the client shares server connections with others.
    pub pooled: bool,
    /// What logs in to the compute.
    pub keys: Arc<LoginKeys>,
    /// What the client's proof was checked against.
    pub verifier: Verifier,
}

/// The endpoint that a client means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The name, without `-pooler`.
    pub endpoint: EndpointName,
    /// Whether the name that the client gave ends in `-pooler`.
    pub pooled: bool,
}

impl Wanted {
    fn of_name(name: EndpointName) -> Result<Wanted, EndpointError> {
        match name.as_str().strip_suffix(POOLER) {
            Some(rest) => Ok(Wanted {
                endpoint: EndpointName::new(rest)?,
                pooled: true,
            }),
            None => Ok(Wanted {
                endpoint: name,
                pooled: false,
            }),
        }
    }
}

/// Why a login did not succeed.
#[derive(Debug)]
pub enum LoginError {
    /// The client is to be told this.
    Fatal(Fatal),
    /// The client went away.
    Broken(PacketError),
}

impl From<Fatal> for LoginError {
    fn from(fatal: Fatal) -> LoginError {
        LoginError::Fatal(fatal)
    }
}

impl From<PacketError> for LoginError {
    fn from(error: PacketError) -> LoginError {
        match error {
            PacketError::Length(_) => protocol(error.to_string()).into(),
            error => LoginError::Broken(error),
        }
    }
}

impl From<std::io::Error> for LoginError {
    fn from(error: std::io::Error) -> LoginError {
        LoginError::Broken(error.into())
    }
}

fn protocol(text: impl Into<String>) -> Fatal {
    Fatal::new("08P01", text)
}

/// The endpoint that a client means, which is taken out of its startup packet: what is left is for the compute.
pub fn endpoint_of(
    startup: &mut Startup,
    server_name: Option<&str>,
    domains: &[String],
) -> Result<Wanted, Fatal> {
    let found = (|| {
        let by_host = server_name.map_or(Ok(None), |host| endpoint::of_host(host, domains))?;
        let options = startup.get("options").map(endpoint::of_options);
        let (by_options, options) = options.transpose()?.unzip();
        let user = startup.user().to_owned();
        let (by_user, role) = endpoint::of_prefix(&user)?;
        if by_user.is_some() {
            // Clients name the database as the user where they are given none.
            if startup.get("database") == Some(&user) {
                startup.set("database", Some(role.to_owned()));
            }
            startup.set("user", Some(role.to_owned()));
        }
        if let Some(options) = options {
            startup.set("options", Some(options).filter(|text| !text.is_empty()));
        }
        let named = endpoint::agreed(by_host, by_options.flatten())?;
        let name = endpoint::agreed(named, by_user)?.ok_or(EndpointError::Missing)?;
        Wanted::of_name(name)
    })();
    let hint = "Connect to the endpoint's own host name with a client that sends it in TLS (libpq from 14 on), \
                or add options=endpoint%3DNAME to the URL, or write the user as endpoint=NAME;ROLE.";
    match found {
        Ok(_) if startup.user().is_empty() => Err(Fatal::new(
            "28000",
            "no role's name follows the endpoint in the user",
        )),
        Ok(name) => Ok(name),
        Err(error) => Err(Fatal::new("08004", error.to_string()).with_hint(hint)),
    }
}

/// What a login needs of its surroundings.
pub struct Context<'a> {
    /// Has the verifiers.
    pub directory: &'a Arc<dyn Directory>,
    /// Slows addresses whose logins fail.
    pub throttle: &'a Throttle,
    /// Makes verifiers of roles that do not exist.
    pub mock: &'a MockSecret,
    /// What the connection's TLS can be bound to.
    pub end_point: Option<&'a [u8]>,
    /// The client's address.
    pub address: IpAddr,
}

/// The verifier that a client's password has to fit, once it is the client's turn: a made-up one where the endpoint or
/// the role does not exist.
///
/// # Errors
/// Too many logins have failed, the directory does not answer, or the endpoint admits nobody from the client's address:
/// then nothing is done with what the client knows.
pub async fn verifier(
    endpoint: &EndpointName,
    role: &str,
    context: &Context<'_>,
) -> Result<Verifier, Fatal> {
    wait_for_turn(endpoint, context).await?;
    let known = context
        .directory
        .endpoint(endpoint)
        .await
        .map_err(|error| {
            tracing::error!(%endpoint, %error, "the directory does not answer");
            Fatal::new(
                "57P03",
                "the server cannot look up its endpoints at the moment; try again",
            )
        })?;
    if let Some(known) = &known
        && !known.admits(context.address)
    {
        return Err(not_allowed(context.address));
    }
    let mock = context.mock.verifier(endpoint.as_str(), role);
    let known = known.and_then(|known| known.roles.get(role).cloned());
    Ok(known.unwrap_or(mock))
}

fn not_allowed(address: IpAddr) -> Fatal {
    metrics::NOT_ALLOWED.inc();
    let address = address.to_canonical();
    let text = format!("the IP address {address} is not allowed to connect to this endpoint");
    let hint = "Add it to allowed_ips in the settings of the endpoint's project, or come from an address that is there.";
    Fatal::new("28000", text).with_hint(hint)
}

/// Notes a wrong endpoint, role or password, and answers with what Postgres says of it, to the letter.
pub fn refuse(endpoint: &EndpointName, role: &str, context: &Context<'_>) -> Fatal {
    let now = Instant::now();
    context.throttle.failed(context.address, endpoint, now);
    let text = format!("password authentication failed for user \"{role}\"");
    Fatal::new("28P01", text)
}

/// Takes the client through the exchange. It has been told of success when this returns well, and of nothing otherwise.
pub async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    wanted: Wanted,
    role: &str,
    context: &Context<'_>,
) -> Result<Login, LoginError> {
    let Wanted { endpoint, pooled } = wanted;
    let verifier = verifier(&endpoint, role, context).await?;
    let with_binding = [SCRAM_SHA_256_PLUS, SCRAM_SHA_256];
    let offered = match context.end_point {
        Some(_) => &with_binding[..],
        None => &with_binding[1..],
    };
    send(stream, &messages::sasl(offered)).await?;
    let Message { body, .. } = response(stream).await?;
    let (mechanism, first) = messages::parse_sasl_initial(&body)
        .ok_or_else(|| protocol("malformed SASLInitialResponse"))?;
    let mechanism = Mechanism::of_name(mechanism)
        .filter(|_| offered.contains(&mechanism))
        .ok_or_else(|| protocol("the client chose a SASL mechanism that was not offered"))?;
    let random: [u8; NONCE_BYTES] = rand::random();
    let (server, answer) = Server::start(
        mechanism,
        first,
        verifier.clone(),
        context.end_point,
        &random,
    )
    .map_err(malformed)?;
    send(stream, &messages::sasl_continue(&answer)).await?;

    let Message { body, .. } = response(stream).await?;
    match server.finish(&body) {
        Ok((keys, answer)) => {
            send(stream, &messages::sasl_final_and_ok(&answer)).await?;
            Ok(Login {
                endpoint,
                pooled,
                keys: Arc::new(keys),
                verifier,
            })
        }
        Err(ScramError::Refused) => Err(refuse(&endpoint, role, context).into()),
        Err(error) => Err(malformed(error).into()),
    }
}

fn malformed(error: ScramError) -> Fatal {
    protocol(error.to_string())
}

async fn wait_for_turn(endpoint: &EndpointName, context: &Context<'_>) -> Result<(), Fatal> {
    match context
        .throttle
        .admit(context.address, endpoint, Instant::now())
    {
        Admission::After(wait) if wait.is_zero() => Ok(()),
        Admission::After(wait) => {
            metrics::SLOWED.inc();
            tokio::time::sleep(wait).await;
            Ok(())
        }
        Admission::Refused(wait) => {
            metrics::SLOWED.inc();
            let text = "too many logins from this address have failed";
            let hint = format!("Try again in {} seconds.", wait.as_secs() + 1);
            Err(Fatal::new("53300", text).with_hint(hint))
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn response(stream: &mut (impl AsyncRead + Unpin)) -> Result<Message, LoginError> {
    let message = packets::message(stream, MOST_SASL_BYTES).await?;
    match message.tag {
        b'p' => Ok(message),
        _ => Err(protocol("a response to the request for a password was expected").into()),
    }
}

#[cfg(test)]
mod tests {
    use pg_protocol::startup::{FirstPacket, parse};

    use super::*;

    #[test]
    fn a_poolers_name_is_taken_apart_wherever_it_stands() {
        let domains = ["db.test".to_owned()];
        for (text, host) in [
            ("user\0app\0\0", Some("ep-a-pooler.db.test")),
            ("user\0app\0options\0endpoint=ep-a-pooler\0\0", None),
            ("user\0endpoint$ep-a-pooler$app\0\0", None),
        ] {
            let wanted = endpoint_of(&mut startup(text), host, &domains).expect("it is named");
            assert_eq!((wanted.endpoint.as_str(), wanted.pooled), ("ep-a", true));
        }
        // Two names that are not the same name two endpoints, and a suffix alone is no name.
        for (text, host) in [
            (
                "user\0app\0options\0endpoint=ep-a\0\0",
                Some("ep-a-pooler.db.test"),
            ),
            ("user\0app\0\0", Some("-pooler.db.test")),
        ] {
            assert!(endpoint_of(&mut startup(text), host, &domains).is_err());
        }
    }

    fn startup(text: &str) -> Startup {
        let body = [&[0, 3, 0, 0][..], text.as_bytes()].concat();
        match parse(&body) {
            Ok(FirstPacket::Startup(startup)) => startup,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_endpoint_is_named_in_any_of_three_places_and_goes_from_there() {
        let domains = ["db.test".to_owned()];
        for (text, host) in [
            ("user\0app\0\0", Some("ep-a.db.test")),
            ("user\0app\0options\0endpoint=ep-a\0\0", None),
            ("user\0endpoint=ep-a;app\0\0", Some("other.test")),
            (
                "user\0endpoint$ep-a;app\0options\0endpoint=ep-a\0\0",
                Some("ep-a.db.test"),
            ),
        ] {
            let mut startup = startup(text);
            let name = endpoint_of(&mut startup, host, &domains).expect("it is named");
            assert_eq!((name.endpoint.as_str(), name.pooled), ("ep-a", false));
            assert_eq!((startup.user(), startup.get("options")), ("app", None));
        }
    }

    #[test]
    fn a_database_that_is_named_as_the_user_goes_by_the_role() {
        for (database, expected) in [("endpoint=ep-a;app", "app"), ("other", "other")] {
            let text = format!("user\0endpoint=ep-a;app\0database\0{database}\0\0");
            let mut startup = startup(&text);
            endpoint_of(&mut startup, None, &[]).expect("it is named");
            assert_eq!(startup.get("database"), Some(expected));
        }
    }

    #[test]
    fn none_and_two_are_errors_that_say_what_to_do() {
        let domains = ["db.test".to_owned()];
        for (text, host) in [
            ("user\0app\0\0", None),
            (
                "user\0app\0options\0endpoint=ep-b\0\0",
                Some("ep-a.db.test"),
            ),
            ("user\0endpoint=ep-a;\0\0", None),
            ("user\0app\0options\0endpoint=EP\0\0", None),
        ] {
            assert!(endpoint_of(&mut startup(text), host, &domains).is_err());
        }
    }
}
