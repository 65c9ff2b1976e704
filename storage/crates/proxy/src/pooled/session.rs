//! One pooled client, from its login to its end.

use std::io;
use std::sync::Arc;

use pg_protocol::messages::{self, Fatal, message};
use pg_protocol::startup::Startup;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::connection::{CommandError, Connection};
use super::pools::{Lease, Pools, QueueTimeout};
use super::turn::{self, Ended};
use crate::cancel::{self, Cancels, Registered};
use crate::login::Login;
use crate::metrics;
use crate::pool::key::{self, Wish};
use crate::pool::parameters::Tracked;
use crate::pool::turn::{Client, Idle, Turn};
use crate::reach::{self, Unreached, Ways};
use crate::relay::{Drain, End, Passed};
use crate::session::Why;

/// While a client waits for a server connection, no more than this is read from it.
const MOST_READ_AHEAD: usize = 64 << 10;

type Stream = Box<TlsStream<TcpStream>>;

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

/// A pooled client that may send statements.
pub struct Session<'a> {
    context: Context<'a>,
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    login: Login,
    wish: Wish,
    /// None while a turn has it.
    client: Option<Client>,
    registered: Registered,
    number: u64,
    /// Bytes of turns, without TLS.
    pub passed: Passed,
    /// Turns so far.
    pub turns: u64,
}

/// Why a client has no server connection, and what it is told.
enum Unserved {
    Told(Vec<u8>, Why),
    /// The client went away, or the proxy ends.
    Ended(End),
}

impl From<Unreached> for Unserved {
    fn from(unreached: Unreached) -> Unserved {
        Unserved::Told(unreached.told, unreached.why)
    }
}

impl Unserved {
    fn fatal(word: &'static str, fatal: &Fatal) -> Unserved {
        Unserved::Told(fatal.to_message(), Why(word, fatal.message.clone()))
    }
}

impl<'a> Session<'a> {
    /// Greets a client that has logged in. `key_bytes` is the length of its key for cancelling.
    ///
    /// # Errors
    /// The client cannot be pooled, or no server connection could be had where one was needed. It has been told.
    pub async fn begin(
        mut stream: Stream,
        startup: &Startup,
        login: Login,
        key_bytes: usize,
        context: Context<'a>,
    ) -> Result<Session<'a>, Why> {
        let greeted = Box::pin(greeting(startup, &login, context)).await;
        let (wish, settings, mut greeting) = match greeted {
            Ok(greeted) => greeted,
            Err(Unserved::Ended(_)) => unreachable!("nobody reads from the client here"),
            Err(Unserved::Told(told, why)) => {
                let _ = stream.write_all(&told).await;
                let _ = stream.shutdown().await;
                return Err(why);
            }
        };
        let registered = context.cancels.register_pooled(key_bytes);
        let request = &registered.request;
        greeting.extend(messages::backend_key(request.process_id, &request.key));
        greeting.extend(message(b'Z', b"I"));
        turn::tell(&mut stream, &greeting)
            .await
            .map_err(|error| Why("client_broke", error.to_string()))?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Session {
            context,
            reader,
            writer,
            login,
            wish,
            client: Some(Client::new(settings)),
            registered,
            number: context.pools.number(),
            passed: Passed::default(),
            turns: 0,
        })
    }

    /// Until the client goes, a turn fails, or `drain` says so.
    ///
    /// # Errors
    /// No server connection could be had, or the client could not be understood. It has been told.
    pub async fn run(&mut self, mut drain: watch::Receiver<Drain>) -> Result<End, Why> {
        let mut client = self.client.take().expect("a session runs once");
        loop {
            match client.idle() {
                Ok(Idle::Terminate) => return Ok(self.goodbye(End::Client { said: true }).await),
                Ok(Idle::Answer(bytes)) => {
                    if let Err(error) = turn::tell(&mut self.writer, &bytes).await {
                        return Ok(End::ClientBroke(error));
                    }
                }
                Ok(Idle::Turn) => match Box::pin(self.turn(client, &mut drain)).await {
                    Ok(Some(back)) => client = back,
                    Ok(None) => return Ok(self.goodbye(End::Client { said: false }).await),
                    Err(Unserved::Ended(end)) => return Ok(self.goodbye(end).await),
                    Err(Unserved::Told(told, why)) => {
                        self.tell_last(&told).await;
                        return Err(why);
                    }
                },
                Ok(Idle::More) => {
                    if let Some(end) = self.hear(&mut client, &mut drain).await {
                        return Ok(self.goodbye(end).await);
                    }
                }
                Err(fatal) => {
                    self.tell_last(&fatal.to_message()).await;
                    return Err(Why("violation", fatal.message));
                }
            }
        }
    }

    /// Waits for more of a client that has no server connection.
    async fn hear(
        &mut self,
        client: &mut Client,
        drain: &mut watch::Receiver<Drain>,
    ) -> Option<End> {
        let read = super::read(&mut self.reader, |bytes| client.inbox.extend(bytes));
        tokio::select! {
            read = read => match read {
                Ok(0) => Some(End::Client { said: false }),
                Ok(_) => None,
                Err(error) => Some(End::ClientBroke(error)),
            },
            () = idle_ones_are_to_end(drain) => Some(End::Shutdown),
        }
    }

    /// One turn. The client comes back when it may have another one.
    async fn turn(
        &mut self,
        mut client: Client,
        drain: &mut watch::Receiver<Drain>,
    ) -> Result<Option<Client>, Unserved> {
        let (lease, mut connection) = self.attach(&mut client, drain).await?;
        self.turns += 1;
        metrics::POOL_TURNS.inc();
        self.registered.aim(connection.backend.clone()).await;
        let Some(server) = connection.server.take() else {
            unreachable!("an idle connection has its state");
        };
        let contents = self.context.pools.contents.clone();
        let turn = Turn::new(client, server, contents);
        let halves = (&mut self.reader, &mut self.writer);
        let stream = &mut connection.stream;
        let (ended, turn) = turn::run(turn, halves, stream, drain, &mut self.passed).await;
        let (reused, prepared) = turn.preparations();
        let count = |result: &str, count| {
            let prepares = metrics::POOL_PREPARES.with_label_values(&[result]);
            prepares.inc_by(count);
        };
        count("reused", reused);
        count("prepared", prepared);
        let back = match ended {
            Ended::Over => {
                connection.server = Some(turn.server);
                // Whoever was to be cancelled is this client, until no request is under way.
                if self.registered.aim(None).await {
                    lease.give_back(connection);
                }
                return Ok(Some(turn.client));
            }
            ref other if other.is_computes() => self.lost(other, &turn),
            other => {
                let told = self.left(other, &turn).await;
                self.clear_up(lease, connection, turn).await;
                told
            }
        };
        self.registered.aim(None).await;
        back
    }

    /// The end of a session whose server connection broke within a turn.
    fn lost(&self, ended: &Ended, turn: &Turn) -> Result<Option<Client>, Unserved> {
        let (word, text) = match ended {
            Ended::ComputeBroke(error) => ("compute_broke", error.to_string()),
            Ended::Desync(desync) => {
                let endpoint = &self.wish.key.group.endpoint;
                tracing::error!(%endpoint, %desync, "a compute's answer does not fit what it was asked");
                ("compute_broke", desync.to_string())
            }
            _ => ("compute", "the compute closed the connection".to_owned()),
        };
        let text = Why(word, text);
        if !turn.can_tell() {
            return Err(Unserved::Told(Vec::new(), text));
        }
        let fatal = Fatal::new("08006", "the connection to the compute broke").with_hint(
            "Connect again. Whether a COMMIT that was under way took effect has to be looked up.",
        );
        Err(Unserved::Told(fatal.to_message(), text))
    }

    /// What a client is told whose session ends within a turn by itself, or by the proxy.
    async fn left(&mut self, ended: Ended, turn: &Turn) -> Result<Option<Client>, Unserved> {
        match ended {
            Ended::ClientLeft { said } => Err(Unserved::Ended(End::Client { said })),
            Ended::ClientBroke(error) => Err(Unserved::Ended(End::ClientBroke(error))),
            Ended::Violation(fatal) if turn.can_tell() => Err(Unserved::fatal("violation", &fatal)),
            Ended::Violation(fatal) => {
                let why = Why("violation", fatal.message);
                Err(Unserved::Told(Vec::new(), why))
            }
            // Nothing is put into the middle of a message.
            _ if turn.can_tell() => Err(Unserved::Ended(End::Shutdown)),
            _ => {
                let why = Why("shutdown", "the proxy shuts down".to_owned());
                Err(Unserved::Told(Vec::new(), why))
            }
        }
    }

    /// What the client has left behind is done or rolled back; where that cannot be, its statement is cancelled and the
    /// connection closed.
    async fn clear_up(&mut self, lease: Lease, mut connection: Box<Connection>, turn: Turn) {
        let finished = turn::finish(turn, &mut connection).await;
        let certain = self.registered.aim(None).await;
        if finished && certain {
            lease.give_back(connection);
        } else if let Some(backend) = connection.backend.take() {
            // The lease is kept as long: the backend works, and counts.
            tokio::spawn(async move {
                cancel::pass_on(&backend).await;
                drop((connection, lease));
            });
        }
    }

    /// A server connection with the client's settings. Meanwhile it is seen whether the client goes away.
    async fn attach(
        &mut self,
        client: &mut Client,
        drain: &mut watch::Receiver<Drain>,
    ) -> Result<(Lease, Box<Connection>), Unserved> {
        let mut settings = client.settings.clone();
        let inbox = &mut client.inbox;
        let reader = &mut self.reader;
        let gone = async {
            loop {
                if inbox.rest().len() >= MOST_READ_AHEAD {
                    return std::future::pending().await;
                }
                match super::read(reader, |bytes| inbox.extend(bytes)).await {
                    Ok(0) => return End::Client { said: false },
                    Ok(_) => {}
                    Err(error) => return End::ClientBroke(error),
                }
            }
        };
        let served = serve(
            self.context,
            &self.wish,
            &self.login,
            self.number,
            &mut settings,
        );
        let served = tokio::select! {
            biased;
            served = served => served,
            end = gone => Err(Unserved::Ended(end)),
            () = idle_ones_are_to_end(drain) => Err(Unserved::Ended(End::Shutdown)),
        };
        client.settings = settings;
        served
    }

    async fn tell_last(&mut self, told: &[u8]) {
        let _ = self.writer.write_all(told).await;
        let _ = self.writer.shutdown().await;
    }

    /// Tells the client that the proxy shuts down, if it does; closes the connection.
    async fn goodbye(&mut self, end: End) -> End {
        let told = match end {
            End::Shutdown => {
                Fatal::new("57P01", "terminating connection: the proxy shuts down").to_message()
            }
            _ => Vec::new(),
        };
        self.tell_last(&told).await;
        end
    }
}

async fn idle_ones_are_to_end(drain: &mut watch::Receiver<Drain>) {
    if drain.wait_for(|drain| *drain >= Drain::Idle).await.is_err() {
        // Without anybody who could say otherwise, a session goes on to its own end.
        std::future::pending::<()>().await;
    }
}

/// What a client wishes, its settings as a server reports them, and what it is told at its begin.
async fn greeting(
    startup: &Startup,
    login: &Login,
    context: Context<'_>,
) -> Result<(Wish, Tracked, Vec<u8>), Unserved> {
    let wish =
        key::wish(&login.endpoint, startup).map_err(|fatal| Unserved::fatal("refused", &fatal))?;
    let pools = context.pools;
    pools.logged_in(&wish.key.group, login.verifier.clone());
    let known = |settings: &Tracked| {
        let all = |learned: &mut crate::pool::parameters::Learned| {
            let mut bytes = Vec::new();
            for (name, value) in learned.greeting(settings) {
                let body = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
                bytes.extend(message(b'S', &body));
            }
            bytes
        };
        pools.learned(&wish.key, all)
    };
    let settings = pools.learned(&wish.key, |learned| learned.settings_of(&wish.tracked));
    if let Some(settings) = settings.flatten() {
        if let Some(greeting) = known(&settings) {
            return Ok((wish, settings, greeting));
        }
    }
    // Only a server knows what it makes of these settings, or what it says at all.
    let mut settings = wish.tracked.clone();
    let (lease, connection) = serve(context, &wish, login, 0, &mut settings).await?;
    pools.learned(&wish.key, |learned| {
        learned.learn(&wish.tracked, &connection.settings());
    });
    let greeting = known(&settings).unwrap_or_default();
    lease.give_back(connection);
    Ok((wish, settings, greeting))
}

/// A server connection of the pool, as it is or a new one, with the client's settings. What the server reports of these goes
/// to `settings`.
async fn serve(
    context: Context<'_>,
    wish: &Wish,
    login: &Login,
    number: u64,
    settings: &mut Tracked,
) -> Result<(Lease, Box<Connection>), Unserved> {
    let pools = context.pools;
    loop {
        let taken = pools.take(&wish.key).await;
        let mut lease = taken.map_err(|timeout| queue_timeout(wish, timeout, pools))?;
        let was_idle = lease.connection.is_some();
        let mut connection = match lease.connection.take() {
            Some(mut connection) => match connection.is_alive() {
                true => connection,
                // It ended while it was idle: another one is tried.
                false => continue,
            },
            None => {
                let endpoint = &wish.key.group.endpoint;
                let (ready, address) =
                    reach::reach(context.ways, endpoint, &login.keys, &wish.startup).await?;
                let most = pools.settings.statements;
                let (connection, learned) = Connection::new(ready, address, lease.epoch, most);
                pools.learn(&wish.key, learned);
                Box::new(connection)
            }
        };
        match prepare(&mut connection, pools, number, settings).await {
            Ok(()) => return Ok((lease, connection)),
            Err(CommandError::Refused(body)) => {
                let error = CommandError::Refused(body.clone());
                let why = Why("refused", error.to_string());
                return Err(Unserved::Told(fatal_of(&body), why));
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
    if let Some(statements) = settings.statements_from(&connection.settings()) {
        connection.command(&statements).await?;
    }
    settings.follow(&connection.settings());
    Ok(())
}

fn broken(error: io::Error) -> Unserved {
    let fatal = Fatal::new("08006", "the connection to the compute broke")
        .with_hint("Connect again; nothing of this client's was under way.");
    let why = Why("compute_broke", error.to_string());
    Unserved::Told(fatal.to_message(), why)
}

fn queue_timeout(wish: &Wish, timeout: QueueTimeout, pools: &Pools) -> Unserved {
    let group = &wish.key.group;
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
