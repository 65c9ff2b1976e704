//! The way of a client to a server connection that has the client's settings.

use std::io;
use std::sync::Arc;

use pg_protocol::messages::{Fatal, message};
use pg_protocol::startup::Startup;

use super::connection::{CommandError, Connection};
use super::pools::{Lease, Pools, QueueTimeout};
use crate::cancel::Cancels;
use crate::end_reason::EndReason;
use crate::login::Login;
use crate::pool::key::{self, Group, PooledStartup};
use crate::pool::parameters::{Learned, Tracked};
use crate::reach::{self, Unreached, Ways};
use crate::relay::End;

/// What a session needs of its surroundings.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Where server connections are.
    pub pools: &'a Arc<Pools>,
    /// How new ones are made.
    pub ways: Ways<'a>,
    /// Where the client's key for cancelling is known.
    pub cancels: &'a Cancels,
}

/// Why a client has no server connection, and what it is told.
pub enum Unserved {
    /// The client is to be told this, and its connection ends.
    Refused(Vec<u8>, EndReason),
    /// The client went away, or the proxy ends.
    Ended(End),
}

impl From<Unreached> for Unserved {
    fn from(unreached: Unreached) -> Unserved {
        Unserved::Refused(unreached.message, unreached.reason)
    }
}

impl Unserved {
    /// For a client that is told this, and whose connection ends with it.
    pub fn fatal(word: &'static str, fatal: &Fatal) -> Unserved {
        Unserved::Refused(fatal.to_message(), EndReason(word, fatal.message.clone()))
    }
}

/// What a client's startup packet means, its settings as a server reports them, and what it is told at its begin.
pub async fn greeting(
    startup: &Startup,
    login: &Login,
    context: Context<'_>,
) -> Result<(PooledStartup, Tracked, Vec<u8>), Unserved> {
    let startup = key::pooled_startup(&login.endpoint, startup)
        .map_err(|fatal| Unserved::fatal("refused", &fatal))?;
    let pools = context.pools;
    pools.logged_in(&startup.key.group, login.verifier.clone());
    let known = |settings: &Tracked| {
        let all = |learned: &mut Learned| {
            let mut bytes = Vec::new();
            for (name, value) in learned.greeting(settings) {
                let body = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
                bytes.extend(message(b'S', &body));
            }
            bytes
        };
        pools.learned(&startup.key, all)
    };
    let settings = pools.learned(&startup.key, |learned| {
        learned.settings_of(&startup.tracked)
    });
    if let Some(settings) = settings.flatten()
        && let Some(greeting) = known(&settings)
    {
        return Ok((startup, settings, greeting));
    }
    // Only a server knows what it makes of these settings, or what it says at all.
    let mut settings = startup.tracked.clone();
    let (lease, connection) = serve(context, &startup, login, 0, &mut settings).await?;
    if let Some(settings) = connection.settings() {
        pools.learned(&startup.key, |learned| {
            learned.learn(&startup.tracked, settings);
        });
    }
    let greeting = known(&settings).unwrap_or_default();
    lease.give_back(connection);
    Ok((startup, settings, greeting))
}

/// A server connection of the pool, as it is or a new one, with the client's settings. What the server reports of these goes
/// to `settings`.
pub async fn serve(
    context: Context<'_>,
    startup: &PooledStartup,
    login: &Login,
    number: u64,
    settings: &mut Tracked,
) -> Result<(Lease, Box<Connection>), Unserved> {
    let pools = context.pools;
    loop {
        let taken = pools.take(&startup.key).await;
        let mut lease = taken.map_err(|timeout| queue_timeout(startup, timeout, pools))?;
        let was_idle = lease.connection.is_some();
        let mut connection = match lease.connection.take() {
            Some(mut connection) => match connection.is_alive() {
                true => connection,
                // It ended while it was idle: another one is tried.
                false => continue,
            },
            None => {
                let Group {
                    endpoint, database, ..
                } = &startup.key.group;
                let (ready, address) =
                    reach::reach(context.ways, endpoint, &login.keys, &startup.server).await?;
                let most = pools.settings.statements;
                let schema = pools.schemas.of(endpoint, database);
                let (connection, learned) =
                    Connection::new(ready, address, lease.made, most, schema);
                pools.learn(&startup.key, learned);
                Box::new(connection)
            }
        };
        match prepare(&mut connection, pools, number, settings).await {
            Ok(()) => return Ok((lease, connection)),
            Err(CommandError::Refused(body)) => {
                let error = CommandError::Refused(body.clone());
                let reason = EndReason("refused", error.to_string());
                return Err(Unserved::Refused(fatal_of(&body), reason));
            }
            // It had ended, and nothing of the client's was sent to it.
            Err(CommandError::Broken(_)) if was_idle => {}
            Err(CommandError::Broken(error)) => return Err(broken(error)),
        }
    }
}

async fn prepare(
    connection: &mut Connection,
    pools: &Pools,
    number: u64,
    settings: &mut Tracked,
) -> Result<(), CommandError> {
    let another = connection.last_client != 0 && connection.last_client != number;
    if pools.settings.discard && another {
        connection.command("DISCARD ALL").await?;
        if let Some(server) = &mut connection.server {
            server.statements.clear();
        }
    }
    if number != 0 {
        connection.last_client = number;
    }
    let current = connection.settings();
    let statements = current.and_then(|current| settings.statements_from(current));
    if let Some(statements) = statements {
        connection.command(&statements).await?;
    }
    if let Some(current) = connection.settings() {
        settings.follow(current);
    }
    Ok(())
}

fn broken(error: io::Error) -> Unserved {
    let fatal = Fatal::new("08006", "the connection to the compute broke")
        .with_hint("Connect again; nothing of this client's was under way.");
    let reason = EndReason("compute_broke", error.to_string());
    Unserved::Refused(fatal.to_message(), reason)
}

fn queue_timeout(startup: &PooledStartup, timeout: QueueTimeout, pools: &Pools) -> Unserved {
    let group = &startup.key.group;
    let limits = pools.settings.limits;
    let text = format!(
        "{timeout} for role \"{}\" in database \"{}\"",
        group.role, group.database
    );
    let hint = format!(
        "A pooler's server connection is free once its transaction has ended: look for long and idle transactions. A \
         role has {} in a database and an endpoint {} (pool_size and pool_database_connections of [proxy]).",
        limits.group, limits.endpoint
    );
    Unserved::fatal("queue_timeout", &Fatal::new("53300", text).with_hint(hint))
}

/// An ErrorResponse of the compute, with which the client's connection ends.
fn fatal_of(body: &[u8]) -> Vec<u8> {
    let mut fields = Vec::with_capacity(body.len());
    for field in body.split(|byte| *byte == 0) {
        match field.first() {
            Some(code @ (b'S' | b'V')) => {
                fields.push(*code);
                fields.extend(b"FATAL");
            }
            Some(_) => fields.extend(field),
            None => continue,
        }
        fields.push(0);
    }
    fields.push(0);
    message(b'E', &fields)
}
