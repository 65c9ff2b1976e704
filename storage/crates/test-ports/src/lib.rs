//! Ports for servers that a test starts, kills and starts again.
//!
//! They lie below those that the kernel gives to outgoing connections (from 32768 on): a port of those can be some
//! client's own by the time a killed server wants it back, even of the client that is trying to reach that server.
//! And they lie above those of the suites in Python and of the journeys, which run at the same time.

#![warn(missing_docs)]

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 29_000;
const COUNT: u32 = 3_700;

/// A loopback port nobody listens on, and that this process has not given out lately. Panics when there is none.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes that test side by side begin at places of their own.
    let begin = std::process::id().wrapping_mul(101);
    for _ in 0..COUNT {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + begin.wrapping_add(given) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_different_and_no_outgoing_connections() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| (29_000..32_700).contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
        let begin = free_port();
        let taken: Vec<_> = (begin + 1..begin + 4)
            .filter_map(|port| {
                TcpListener::bind(("127.0.0.1", port))
                    .ok()
                    .map(|it| (port, it))
            })
            .collect();
        let next = free_port();
        assert!(taken.iter().all(|(port, _)| *port != next));
    }
}
