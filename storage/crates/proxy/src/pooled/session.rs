//! One pooled client, from its login to its end.

use pg_protocol::messages::{self, Fatal, message};
use pg_protocol::startup::Startup;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use super::connection::Connection;
use super::pools::Lease;
use super::serve::{Context, Unserved, greeting, serve};
use super::turn::{self, Ended};
use crate::cancel::{self, Registered};
use crate::end_reason::EndReason;
use crate::login::Login;
use crate::metrics;
use crate::pool::key::PooledStartup;
use crate::pool::turn::{Client, Idle, Turn};
use crate::relay::{Drain, End, Passed};

/// While a client waits for a server connection, no more than this is read from it.
const MOST_READ_AHEAD: usize = 64 << 10;

/// A pooled client that may send statements.
pub struct Session<'a, S> {
    context: Context<'a>,
    stream: S,
    login: Login,
    startup: PooledStartup,
    /// None while a turn has it.
    client: Option<Client>,
    registered: Registered,
    number: u64,
    /// Bytes of turns, without TLS.
    pub passed: Passed,
    /// Turns so far.
    pub turns: u64,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Session<'a, S> {
    /// Greets a client that has logged in. `key_bytes` is the length of its key for cancelling.
    ///
    /// # Errors
    /// The client cannot be pooled, or no server connection could be had where one was needed. It has been told.
    pub async fn begin(
        mut stream: S,
        startup: &Startup,
        login: Login,
        key_bytes: usize,
        context: Context<'a>,
    ) -> Result<Session<'a, S>, EndReason> {
        let greeted = Box::pin(greeting(startup, &login, context)).await;
        let (startup, settings, mut greeting) = match greeted {
            Ok(greeted) => greeted,
            Err(Unserved::Ended(_)) => unreachable!("nobody reads from the client here"),
            Err(Unserved::Refused(message, reason)) => {
                let _ = stream.write_all(&message).await;
                let _ = stream.shutdown().await;
                return Err(reason);
            }
        };
        let registered = context.cancels.register_pooled(key_bytes);
        let request = &registered.request;
        greeting.extend(messages::backend_key(request.process_id, &request.key));
        greeting.extend(message(b'Z', b"I"));
        turn::send(&mut stream, &greeting)
            .await
            .map_err(|error| EndReason("client_broke", error.to_string()))?;
        Ok(Session {
            context,
            stream,
            login,
            startup,
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
    pub async fn run(&mut self, mut drain: watch::Receiver<Drain>) -> Result<End, EndReason> {
        let mut client = self.client.take().expect("a session runs once");
        loop {
            match client.idle() {
                Ok(Idle::Terminate) => return Ok(self.goodbye(End::Client { said: true }).await),
                Ok(Idle::Answer(bytes)) => {
                    if let Err(error) = turn::send(&mut self.stream, &bytes).await {
                        return Ok(End::ClientBroke(error));
                    }
                }
                Ok(Idle::Turn) => match Box::pin(self.turn(client, &mut drain)).await {
                    Ok(Some(back)) => client = back,
                    Ok(None) => return Ok(self.goodbye(End::Client { said: false }).await),
                    Err(Unserved::Ended(end)) => return Ok(self.goodbye(end).await),
                    Err(Unserved::Refused(message, reason)) => {
                        self.send_last(&message).await;
                        return Err(reason);
                    }
                },
                Ok(Idle::More) => {
                    if let Some(end) = self.hear(&mut client, &mut drain).await {
                        return Ok(self.goodbye(end).await);
                    }
                }
                Err(fatal) => {
                    self.send_last(&fatal.to_message()).await;
                    return Err(EndReason("violation", fatal.message));
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
        let read = super::read(&mut self.stream, |bytes| client.inbox.extend(bytes));
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
        connection.is_between = false;
        let contents = self.context.pools.contents.clone();
        let turn = Turn::new(client, server, contents);
        let compute = &mut connection.stream;
        let passed = &mut self.passed;
        let (ended, turn) = turn::run(turn, &mut self.stream, compute, drain, passed).await;
        count_preparations(&turn);
        let back = match ended {
            Ended::Over => {
                connection.server = Some(turn.server);
                connection.is_between = true;
                // Whoever was to be cancelled is this client, until no request is under way.
                if self.registered.aim(None).await {
                    lease.give_back(connection);
                }
                return Ok(Some(turn.client));
            }
            ref other if other.is_computes() => self.lost(other, &turn),
            // There is no time to bring anything to its end.
            Ended::Shutdown => self.left(Ended::Shutdown, &turn),
            other => {
                let told = self.left(other, &turn);
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
                let endpoint = &self.startup.key.group.endpoint;
                tracing::error!(%endpoint, %desync, "a compute's answer does not fit what it was asked");
                ("compute_broke", desync.to_string())
            }
            _ => ("compute", "the compute closed the connection".to_owned()),
        };
        let text = EndReason(word, text);
        // Postgres itself has told the client why it ends, as when an operator has a session ended; drivers go by the
        // last error that they are given.
        if !turn.can_tell() || turn.server.has_ended() {
            return Err(Unserved::Refused(Vec::new(), text));
        }
        let fatal = Fatal::new("08006", "the connection to the compute broke").with_hint(
            "Connect again. Whether a COMMIT that was under way took effect has to be looked up.",
        );
        Err(Unserved::Refused(fatal.to_message(), text))
    }

    /// What a client is told whose session ends within a turn by itself, or by the proxy.
    fn left(&self, ended: Ended, turn: &Turn) -> Result<Option<Client>, Unserved> {
        match ended {
            Ended::ClientLeft { said } => Err(Unserved::Ended(End::Client { said })),
            Ended::ClientBroke(error) => Err(Unserved::Ended(End::ClientBroke(error))),
            Ended::Violation(fatal) if turn.can_tell() => Err(Unserved::fatal("violation", &fatal)),
            Ended::Violation(fatal) => {
                let reason = EndReason("violation", fatal.message);
                Err(Unserved::Refused(Vec::new(), reason))
            }
            // Nothing is put into the middle of a message.
            _ if turn.can_tell() => Err(Unserved::Ended(End::Shutdown)),
            _ => {
                let reason = EndReason("shutdown", "the proxy shuts down".to_owned());
                Err(Unserved::Refused(Vec::new(), reason))
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
        let mut settings = std::mem::take(&mut client.settings);
        let inbox = &mut client.inbox;
        let stream = &mut self.stream;
        let gone = async {
            loop {
                if inbox.rest().len() >= MOST_READ_AHEAD {
                    return std::future::pending().await;
                }
                match super::read(stream, |bytes| inbox.extend(bytes)).await {
                    Ok(0) => return End::Client { said: false },
                    Ok(_) => {}
                    Err(error) => return End::ClientBroke(error),
                }
            }
        };
        let served = serve(
            self.context,
            &self.startup,
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

    async fn send_last(&mut self, message: &[u8]) {
        let _ = self.stream.write_all(message).await;
        let _ = self.stream.shutdown().await;
    }

    /// Tells the client that the proxy shuts down, if it does; closes the connection.
    async fn goodbye(&mut self, end: End) -> End {
        let message = match end {
            End::Shutdown => {
                Fatal::new("57P01", "terminating connection: the proxy shuts down").to_message()
            }
            _ => Vec::new(),
        };
        self.send_last(&message).await;
        end
    }
}

fn count_preparations(turn: &Turn) {
    let counts = turn.preparations();
    for (result, count) in [
        ("reused", counts.reused),
        ("prepared", counts.prepared),
        ("renewed", counts.renewed),
    ] {
        if count > 0 {
            let prepares = metrics::POOL_PREPARES.with_label_values(&[result]);
            prepares.inc_by(count);
        }
    }
}

async fn idle_ones_are_to_end(drain: &mut watch::Receiver<Drain>) {
    if drain.wait_for(|drain| *drain >= Drain::Idle).await.is_err() {
        // Without anybody who could say otherwise, a session goes on to its own end.
        std::future::pending::<()>().await;
    }
}
