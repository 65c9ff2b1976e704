//! Threads for what must wait: storage, or the throttle.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that take jobs in order. Dropping it lets the queued jobs finish.
pub struct Pool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the threads, named `name-0` and so on. Fails when the system gives no thread.
    pub fn new(name: &str, threads: usize) -> std::io::Result<Pool> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..threads)
            .map(|i| {
                let queue = queue.clone();
                std::thread::Builder::new()
                    .name(format!("{name}-{i}"))
                    .stack_size(512 << 10)
                    .spawn(move || {
                        loop {
                            let job = queue.lock().recv();
                            match job {
                                Ok(job) => job(),
                                Err(_) => return,
                            }
                        }
                    })
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Pool {
            jobs: Some(jobs),
            threads,
        })
    }

    /// Queues a job; never waits.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // Only fails when every thread is gone, which a panicking job alone could cause.
            if jobs.send(Box::new(job)).is_err() {
                tracing::error!("a worker pool of the volume has no threads left");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs.take();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker of the volume panicked");
            }
        }
    }
}
