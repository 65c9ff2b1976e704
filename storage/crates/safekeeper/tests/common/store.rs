//! Safekeepers that offload into a directory, and what is there.

use std::path::Path;

use pg_types::Lsn;
use serde_json::Value;

use super::{Postgres, Quorum, eventually};

pub fn store(dir: &Path) -> Vec<String> {
    let store = dir.join("objects");
    [
        "--object-store".to_owned(),
        format!("file://{}", store.display()),
    ]
    .to_vec()
}

pub fn idle(seconds: u64) -> Vec<String> {
    ["--offload-idle-seconds".to_owned(), seconds.to_string()].to_vec()
}

pub async fn quorum(dir: &Path, postgres: &Postgres, idle_seconds: u64) -> Quorum {
    let arguments = [store(dir), idle(idle_seconds)].concat();
    Quorum::start_with(dir, 3, postgres, &arguments).await
}

pub async fn fill(url: &str, body: Value) -> (u16, Value) {
    let sent = reqwest::Client::new()
        .post(format!("{url}/fill"))
        .json(&body);
    let reply = sent.send().await.expect("ask");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

pub async fn offloaded(quorum: &Quorum) -> Lsn {
    let mut best = Lsn::INVALID;
    for index in 0..quorum.safekeepers.len() {
        let status = quorum.status(index).await;
        if let Some(lsn) = status["offloaded_lsn"].as_str() {
            best = best.max(lsn.parse().expect("an LSN"));
        }
    }
    best
}

pub async fn offloaded_to(quorum: &Quorum, lsn: Lsn) -> Lsn {
    eventually("WAL to be offloaded", async || {
        let so_far = offloaded(quorum).await;
        (so_far >= lsn).then_some(so_far)
    })
    .await
}

pub fn objects(quorum: &Quorum, dir: &Path) -> Vec<String> {
    let folder = format!("objects/{}/{}/wal", quorum.tenant, quorum.timeline);
    let Ok(entries) = std::fs::read_dir(dir.join(folder)) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("entry").file_name();
        name.into_string().expect("a name")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}
