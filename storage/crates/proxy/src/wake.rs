//! One wake for all who wait for the same compute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;

use crate::directory::{Directory, DirectoryError, State};
use crate::metrics;

type Flight = Shared<BoxFuture<'static, Result<(), DirectoryError>>>;

/// The wakes that are under way.
#[derive(Clone, Default)]
pub struct Wakes {
    flights: Arc<Mutex<HashMap<EndpointName, Flight>>>,
}

impl Wakes {
    /// Has the compute started, by the wake that is under way if there is one. A wake goes on when those who waited for
    /// it have gone, and is given up after `limit`, as this call is.
    pub async fn wake(
        &self,
        directory: &Arc<dyn Directory>,
        name: &EndpointName,
        limit: Duration,
    ) -> Result<(), DirectoryError> {
        let flight = self.flight(directory, name, limit);
        match tokio::time::timeout(limit, flight).await {
            Ok(outcome) => outcome,
            Err(_) => Err(timed_out(name, limit)),
        }
    }

    fn flight(
        &self,
        directory: &Arc<dyn Directory>,
        name: &EndpointName,
        limit: Duration,
    ) -> Flight {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(name) {
            return flight.clone();
        }
        let (directory, key, all) = (directory.clone(), name.clone(), self.flights.clone());
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            // Whoever asked may have looked before the wake that has just ended.
            let now = directory.endpoint(&key).await;
            if now.is_ok_and(|now| now.is_some_and(|now| matches!(now.state, State::Running(_)))) {
                all.lock().remove(&key);
                return Ok(());
            }
            tracing::info!(endpoint = %key, "wakes a suspended compute");
            let outcome = match tokio::time::timeout(limit, directory.wake(&key)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(timed_out(&key, limit)),
            };
            all.lock().remove(&key);
            let seconds = begun.elapsed().as_secs_f64();
            metrics::WAKE_SECONDS.observe(seconds);
            match &outcome {
                Ok(()) => {
                    metrics::WAKES.with_label_values(&["ok"]).inc();
                    tracing::info!(endpoint = %key, seconds, "woke a compute");
                }
                Err(error) => {
                    metrics::WAKES.with_label_values(&["failed"]).inc();
                    tracing::error!(endpoint = %key, seconds, %error, "cannot wake a compute");
                }
            }
            outcome
        });
        let all = self.flights.clone();
        let key = name.clone();
        let flight: Flight = async move {
            task.await.unwrap_or_else(|error| {
                all.lock().remove(&key);
                Err(DirectoryError(format!("the wake broke off: {error}")))
            })
        }
        .boxed()
        .shared();
        flights.insert(name.clone(), flight.clone());
        flight
    }
}

fn timed_out(name: &EndpointName, limit: Duration) -> DirectoryError {
    DirectoryError(format!("endpoint {name} did not start within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::directory::Endpoint;

    /// A control plane that takes its time, and at first fails.
    struct Slow {
        calls: AtomicUsize,
        takes: Duration,
        failures: usize,
    }

    #[async_trait]
    impl Directory for Slow {
        async fn endpoint(
            &self,
            _: &EndpointName,
        ) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
            Ok(None)
        }

        async fn wake(&self, _: &EndpointName) -> Result<(), DirectoryError> {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.takes).await;
            match call < self.failures {
                true => Err(DirectoryError("no host has room".to_owned())),
                false => Ok(()),
            }
        }
    }

    fn slow(takes: Duration, failures: usize) -> (Arc<Slow>, Arc<dyn Directory>) {
        let slow = Arc::new(Slow {
            calls: AtomicUsize::new(0),
            takes,
            failures,
        });
        (slow.clone(), slow)
    }

    fn name() -> EndpointName {
        EndpointName::new("ep-a").expect("a name")
    }

    async fn herd(wakes: &Wakes, directory: &Arc<dyn Directory>, count: usize) -> Vec<bool> {
        let all = (0..count).map(|_| {
            let (wakes, directory) = (wakes.clone(), directory.clone());
            async move {
                let limit = Duration::from_secs(60);
                wakes.wake(&directory, &name(), limit).await.is_ok()
            }
        });
        futures::future::join_all(all).await
    }

    #[tokio::test]
    async fn a_herd_asks_once_and_learns_of_a_failure_once() {
        let (slow, directory) = slow(Duration::from_millis(300), 1);
        let wakes = Wakes::default();
        assert!(herd(&wakes, &directory, 1000).await.iter().all(|ok| !ok));
        assert_eq!(slow.calls.load(Ordering::SeqCst), 1);
        // A failure is not remembered: who comes after it asks again.
        assert!(herd(&wakes, &directory, 1000).await.iter().all(|ok| *ok));
        assert_eq!(slow.calls.load(Ordering::SeqCst), 2);
        assert!(wakes.flights.lock().is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_the_limit_and_the_next_one_asks_again() {
        let (slow, directory) = slow(Duration::from_secs(3600), 0);
        let wakes = Wakes::default();
        let limit = Duration::from_millis(200);
        for calls in [1, 2] {
            let begun = Instant::now();
            let error = wakes.wake(&directory, &name(), limit).await;
            assert_eq!(error, Err(timed_out(&name(), limit)));
            assert!(begun.elapsed() < limit + Duration::from_secs(5));
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(slow.calls.load(Ordering::SeqCst), calls);
        }
    }

    #[tokio::test]
    async fn a_client_that_gives_up_takes_nobody_with_it() {
        let (slow, directory) = slow(Duration::from_millis(500), 0);
        let wakes = Wakes::default();
        let first = tokio::spawn({
            let (wakes, directory) = (wakes.clone(), directory.clone());
            async move {
                wakes
                    .wake(&directory, &name(), Duration::from_secs(60))
                    .await
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        first.abort();
        assert!(herd(&wakes, &directory, 10).await.iter().all(|ok| *ok));
        assert_eq!(slow.calls.load(Ordering::SeqCst), 1);
    }
}
