//! Writes a layer's file into a local directory past the kernel's page cache.
//!
//! A layer is written once, and the pageserver has its own caches for what is read of it. In the kernel's page cache
//! a new layer would push out what other reads need, would be copied once more, and would come to the disk in bursts
//! that every later sync waits for. Bytes at addresses and positions that the disk's blocks allow go to the disk from
//! where they lie in memory. The remaining bytes go through the page cache, and so do all bytes where the file system
//! refuses to bypass it.
//!
//! A crash leaves a staging file (`staged`) or the whole file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use object_store::PutPayload;

use crate::staged::stage;

/// Places, lengths and addresses must be multiples of it: of a disk's blocks, which are no larger.
const ALIGNMENT: usize = 4096;

/// Writes a file whole, or leaves what was there; durable on return. Its directory must be there.
pub(crate) fn write(path: &Path, content: &PutPayload) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::NotADirectory)?;
    let (file, staged) = stage(path)?;
    let mut position = 0;
    for piece in content {
        let is_aligned = position % ALIGNMENT == 0 && piece.as_ptr().addr() % ALIGNMENT == 0;
        let whole_pages = if is_aligned {
            piece.len() - piece.len() % ALIGNMENT
        } else {
            0
        };
        let (pages, rest) = piece.split_at(whole_pages);
        write_pages(&file, pages, position)?;
        file.write_all_at(rest, (position + pages.len()) as u64)?;
        position += piece.len();
    }
    crash::point!("in-place.written");
    file.sync_all()?;
    crash::point!("in-place.synced");
    staged.persist(path)?;
    crash::point!("in-place.renamed");
    File::open(directory)?.sync_all()
}

fn write_pages(file: &File, pages: &[u8], position: usize) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    if past_the_cache(file, true).is_ok() {
        let written = file.write_all_at(pages, position as u64);
        past_the_cache(file, false)?;
        match written {
            // Other alignments are asked for here.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            written => return written,
        }
    }
    file.write_all_at(pages, position as u64)
}

/// Refused by file systems that have no other way than through their cache.
fn past_the_cache(file: &File, direct: bool) -> nix::Result<()> {
    let flags = if direct {
        OFlag::O_DIRECT
    } else {
        OFlag::empty()
    };
    fcntl(file, FcntlArg::F_SETFL(flags)).map(drop)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Store;

    /// So many bytes that begin so far behind a page's border.
    fn piece(length: usize, behind: usize, fill: u8) -> Bytes {
        let memory = Bytes::from(vec![fill; length + behind + ALIGNMENT]);
        let border = memory.as_ptr().align_offset(ALIGNMENT);
        memory.slice(border + behind..border + behind + length)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Promise: the file is its pieces, one behind the other, wherever they lie in memory and however long they are,
    /// on a disk and in a file system that lies in memory; nothing else is left there.
    #[test]
    fn a_file_is_its_pieces() {
        let page = ALIGNMENT;
        let cases: [&[(usize, usize)]; 8] = [
            &[],
            &[(10, 0)],
            &[(page, 0), (page, 0)],
            &[(512 * page, 0), (512 * page, 0), (3 * page + 7, 0)],
            &[(page, 1), (page, 0)],
            &[(page + 1, 0), (page, 0), (page - 1, 0), (2 * page, 0)],
            &[(1, 0), (0, 0), (2 * page, 0)],
            &[(2 * page, 512), (2 * page, 0)],
        ];
        let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
        for directory in [tempfile::tempdir().unwrap(), in_memory] {
            let path = directory.path().join("layer");
            for case in cases {
                let pieces: Vec<Bytes> = case
                    .iter()
                    .zip(1..)
                    .map(|((length, behind), fill)| piece(*length, *behind, fill))
                    .collect();
                write(&path, &pieces.iter().cloned().collect()).unwrap();
                let written = std::fs::read(&path).unwrap();
                assert!(written == pieces.concat(), "{path:?}: {case:?}");
                assert_eq!(names(directory.path()), ["layer"]);
            }
        }
    }

    /// Promise: a write that fails leaves what was there, and nothing of its own.
    #[test]
    fn a_failed_write_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer");
        std::fs::create_dir_all(path.join("in the way")).unwrap();
        write(&path, &piece(3 * ALIGNMENT, 0, 1).into()).unwrap_err();
        assert_eq!(names(directory.path()), ["layer"]);
        assert_eq!(names(&path), ["in the way"]);
    }

    /// Promise: what a crash left of a write stands in no other's way, and no listing shows it.
    #[tokio::test]
    async fn what_a_crash_left_is_not_seen() {
        use futures::TryStreamExt;

        let directory = tempfile::tempdir().unwrap();
        let store = Store::local(directory.path()).unwrap();
        let (_, left) = stage(&directory.path().join("layer")).unwrap();
        let left = left.keep().unwrap();
        write(&directory.path().join("layer"), &piece(10, 0, 1).into()).unwrap();
        assert_eq!(names(directory.path()), ["layer", "layer#1"]);
        assert!(std::fs::read(left).unwrap().is_empty());
        let listed: Vec<_> = store.objects().list(None).try_collect().await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|found| found.location.as_ref()).collect();
        assert_eq!(listed, ["layer"]);
    }
}
