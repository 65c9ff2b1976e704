//! The list of pages to load, withheld from Postgres until its first clients have been served.
//!
//! Postgres's library begins to load as soon as it has read its list, and it reads that as soon as sessions can begin:
//! just when the client comes for whom the compute was started. So the file that it opens is a pipe, which the agent
//! fills when it likes. Postgres waits for it in `read`, without a lock of any kind; it waits there through a fast
//! shutdown as well, so that a suspend fills the pipe too. An immediate shutdown ends the wait, as does the end of the
//! agent, which is the end of Postgres.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::postgres::DataDirectory;
use crate::prewarm::FILE;

/// Between two looks whether Postgres has read all of it.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A list that Postgres waits for. Dropping it gives Postgres none of what it has not read.
pub struct Withheld {
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Withheld {
    /// `pipe` is open at both ends and is called [`FILE`] in `data`; `list` is what Postgres is to read there.
    pub fn new(pipe: File, list: Vec<u8>, data: DataDirectory) -> io::Result<Withheld> {
        let pipe = Sender::from_file(pipe)?;
        let wanted = Arc::new(Notify::new());
        let asked = wanted.clone();
        let task = tokio::spawn(async move {
            asked.notified().await;
            if let Err(error) = give(pipe, &list).await {
                tracing::warn!(%error, "Postgres did not get the list of pages to load ahead of need");
            }
            // Postgres puts its own list there as it shuts down.
            if let Err(error) = data.remove(FILE) {
                tracing::warn!(%error, "cannot remove the pipe by which Postgres got its list of pages");
            }
        });
        Ok(Withheld { wanted, task })
    }

    /// Lets Postgres have the list from now on, however often it is said.
    pub fn hand_over(&self) {
        self.wanted.notify_one();
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes it all and waits until it is read: what is left in a pipe is gone with the last who has it open, and whoever
/// opens it to read then waits for a writer for ever.
async fn give(mut pipe: Sender, list: &[u8]) -> io::Result<()> {
    pipe.write_all(list).await?;
    while rustix::io::ioctl_fionread(&pipe)? > 0 {
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::postgres::OsUser;

    /// A data directory with the pipe, and how Postgres reads it: on a thread of its own, to the end.
    fn made(directory: &std::path::Path) -> (DataDirectory, File, std::path::PathBuf) {
        let user = OsUser::current().unwrap();
        let path = directory.join("pgdata");
        let data = DataDirectory::create(&path, &directory.join("volume"), &user).unwrap();
        let pipe = data.pipe(FILE).unwrap();
        (data, pipe, path.join(FILE))
    }

    fn reader(path: std::path::PathBuf) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut read = Vec::new();
            File::open(path).unwrap().read_to_end(&mut read).unwrap();
            read
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_waits_for_the_list_and_gets_all_of_it_once() {
        let directory = tempfile::tempdir().unwrap();
        let (data, pipe, path) = made(directory.path());
        // More than a pipe holds.
        let list: Vec<u8> = (0..300_000u32).map(|at| b'a' + (at % 26) as u8).collect();
        let withheld = Withheld::new(pipe, list.clone(), data).unwrap();
        let reading = reader(path.clone());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!reading.is_finished(), "nothing was handed over yet");
        withheld.hand_over();
        withheld.hand_over();
        let read = tokio::task::spawn_blocking(|| reading.join().unwrap());
        assert_eq!(read.await.unwrap(), list);
        for _ in 0..500 {
            if !path.exists() {
                return;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        panic!("the pipe is still there for the next one to wait at");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_list_that_is_handed_over_before_anybody_reads_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (data, pipe, path) = made(directory.path());
        let withheld = Withheld::new(pipe, b"<<0>>\n".to_vec(), data).unwrap();
        withheld.hand_over();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let read = tokio::task::spawn_blocking(|| reader(path).join().unwrap());
        assert_eq!(read.await.unwrap(), b"<<0>>\n");
        drop(withheld);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_is_let_go_when_the_run_ends() {
        let directory = tempfile::tempdir().unwrap();
        let (data, pipe, path) = made(directory.path());
        let withheld = Withheld::new(pipe, b"never".to_vec(), data).unwrap();
        let reading = reader(path);
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(withheld);
        let read = tokio::task::spawn_blocking(|| reading.join().unwrap());
        assert_eq!(read.await.unwrap(), b"");
    }
}
