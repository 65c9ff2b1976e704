//! A limit of the bytes that requests by HTTP hold together: bodies, and answers that are being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pg_protocol::messages::Fatal;

/// The bytes that are left.
pub struct Memory {
    left: AtomicUsize,
    all: usize,
}

/// Bytes that were taken, given back when this goes.
pub struct Taken {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    /// With so many bytes.
    pub fn new(bytes: usize) -> Arc<Memory> {
        Arc::new(Memory {
            left: AtomicUsize::new(bytes),
            all: bytes,
        })
    }

    /// Nothing taken yet.
    pub fn begin(self: &Arc<Memory>) -> Taken {
        Taken {
            memory: self.clone(),
            bytes: 0,
        }
    }
}

impl Taken {
    /// Takes more, so that `bytes` are held in all; fewer than are held already change nothing. Waiting for others to give
    /// back would let large requests wait for one another without end, so nobody waits.
    ///
    /// # Errors
    /// 53200: others hold too much at the moment.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Fatal> {
        let more = bytes.saturating_sub(self.bytes);
        let left = &self.memory.left;
        let took = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(more)
        });
        match took {
            Ok(_) => {
                self.bytes += more;
                Ok(())
            }
            Err(_) => {
                let text = format!(
                    "requests by HTTP hold all of the {} MiB that the proxy has for them",
                    self.memory.all >> 20
                );
                let hint = "Try again in a moment, or send less at a time.";
                Err(Fatal::new("53200", text).with_hint(hint))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_there_is_and_all_comes_back() {
        let memory = Memory::new(100);
        let (mut one, mut other) = (memory.begin(), memory.begin());
        assert!(one.hold(60).is_ok());
        assert!(one.hold(50).is_ok(), "it has that already");
        assert!(other.hold(40).is_ok());
        assert_eq!(
            other.hold(41).err().map(|fatal| fatal.sqlstate),
            Some("53200")
        );
        drop(one);
        assert!(other.hold(100).is_ok());
        drop(other);
        assert_eq!(memory.left.load(Ordering::Relaxed), 100);
    }
}
