//! A directory that is a JSON file, read again when it changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use parking_lot::RwLock;
use pg_protocol::endpoint::EndpointName;
use serde::Deserialize;
use tokio::process::Command;

use super::entry::{self, Entry};
use super::{Directory, DirectoryError, Endpoint, State};

type Endpoints = HashMap<EndpointName, Arc<Endpoint>>;

/// The file; docs/interfaces.md has its shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    endpoints: HashMap<String, Entry>,
}

/// Endpoints as a file has them. Whoever writes the file replaces it as a whole, by renaming a new one onto it.
pub struct FileDirectory {
    path: PathBuf,
    wake_command: Option<PathBuf>,
    endpoints: RwLock<Endpoints>,
}

impl FileDirectory {
    /// Reads the file. `wake_command` is called with the name of an endpoint that is to be started.
    pub fn open(path: &Path, wake_command: Option<PathBuf>) -> anyhow::Result<FileDirectory> {
        Ok(FileDirectory {
            path: path.to_owned(),
            wake_command,
            endpoints: RwLock::new(read(path)?),
        })
    }

    /// Reads the file again. With a file that cannot be read or makes no sense the endpoints stay what they were.
    pub fn reload(&self) -> anyhow::Result<()> {
        let endpoints = read(&self.path)?;
        *self.endpoints.write() = endpoints;
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<Endpoints> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no directory of endpoints", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Endpoints> {
    let document: Document = entry::parse(text.as_bytes())?;
    document
        .endpoints
        .into_iter()
        .map(|(name, entry)| {
            let endpoint = entry
                .endpoint()
                .with_context(|| format!("endpoint {name}"))?;
            Ok((EndpointName::new(&name)?, Arc::new(endpoint)))
        })
        .collect()
}

#[async_trait]
impl Directory for FileDirectory {
    async fn endpoint(&self, name: &EndpointName) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
        Ok(self.endpoints.read().get(name).cloned())
    }

    async fn wake(&self, name: &EndpointName) -> Result<(), DirectoryError> {
        let Some(program) = &self.wake_command else {
            return Err(DirectoryError(format!(
                "endpoint {name} is suspended, and no --wake-command was given to start it with"
            )));
        };
        let ended = Command::new(program)
            .arg(name.as_str())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await
            .map_err(|error| {
                DirectoryError(format!("cannot run {}: {error}", program.display()))
            })?;
        let program = program.display();
        if !ended.success() {
            return Err(DirectoryError(format!(
                "{program} {name} ended with {ended}"
            )));
        }
        self.reload()
            .map_err(|error| DirectoryError(format!("after {program} {name}: {error:#}")))?;
        match self
            .endpoint(name)
            .await?
            .map(|endpoint| endpoint.state.clone())
        {
            Some(State::Running(_)) => Ok(()),
            _ => Err(DirectoryError(format!(
                "{program} {name} ended well, and the directory does not say that the compute runs"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    fn document(entry: &str) -> String {
        format!(r#"{{"endpoints": {{"ep-a": {entry}}}}}"#)
    }

    #[test]
    fn endpoints_are_read_with_their_roles() {
        let entry = format!(
            r#"{{"state": "running", "address": "127.0.0.1:7700", "roles": {{"app": "{VERIFIER}"}}}}"#
        );
        let endpoints = parse(&document(&entry)).expect("well formed");
        let endpoint = &endpoints[&EndpointName::new("ep-a").expect("a name")];
        assert_eq!(endpoint.state, State::Running("127.0.0.1:7700".to_owned()));
        assert_eq!(endpoint.roles["app"].to_text(), VERIFIER);
    }

    #[test]
    fn an_endpoint_admits_the_addresses_of_its_list_and_without_one_all() {
        let admits = |list: &str, address: &str| {
            let entry = format!(r#"{{"state": "suspended", "roles": {{}}{list}}}"#);
            let endpoints = parse(&document(&entry)).expect("well formed");
            let endpoint = &endpoints[&EndpointName::new("ep-a").expect("a name")];
            endpoint.admits(address.parse().expect("an address"))
        };
        assert!(admits("", "192.0.2.7"));
        assert!(admits(r#", "allowed_ips": null"#, "192.0.2.7"));
        assert!(admits(r#", "allowed_ips": ["192.0.2.0/24", "::1"]"#, "::1"));
        assert!(!admits(
            r#", "allowed_ips": ["192.0.2.0/24", "::1"]"#,
            "192.0.3.7"
        ));
        assert!(!admits(r#", "allowed_ips": []"#, "192.0.2.7"));
    }

    /// The file holds verifiers: an error about it must not bring one to the log.
    #[test]
    fn what_does_not_fit_is_refused_without_being_quoted() {
        for entry in [
            r#"{"state": "running", "roles": {}}"#.to_owned(),
            r#"{"state": "asleep", "roles": {}}"#.to_owned(),
            r#"{"state": "suspended"}"#.to_owned(),
            r#"{"state": "suspended", "roles": {}, "allowed_ips": ["192.0.2.0/33"]}"#.to_owned(),
            r#"{"state": "suspended", "roles": {}, "allowed_ips": "192.0.2.7"}"#.to_owned(),
            format!(r#"{{"state": "suspended", "roles": {{"app": "x{VERIFIER}"}}}}"#),
            format!(r#"{{"state": "suspended", "roles": "{VERIFIER}"}}"#),
            format!(r#"{{"state": "suspended", "roles": {{}}, "{VERIFIER}": 1}}"#),
        ] {
            let error = format!(
                "{:#}",
                parse(&document(&entry)).expect_err("it does not fit")
            );
            assert!(!error.contains("W22Z"), "{error}");
        }
        assert!(parse(r#"{"endpoints": {"EP": {"state": "suspended", "roles": {}}}}"#).is_err());
    }

    #[test]
    fn a_file_that_makes_no_sense_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("endpoints.json");
        std::fs::write(&path, document(r#"{"state": "disabled", "roles": {}}"#)).expect("written");
        let directory = FileDirectory::open(&path, None).expect("well formed");
        std::fs::write(&path, "{").expect("written");
        assert!(directory.reload().is_err());
        assert_eq!(directory.endpoints.read().len(), 1);
        std::fs::write(&path, r#"{"endpoints": {}}"#).expect("written");
        directory.reload().expect("well formed");
        assert!(directory.endpoints.read().is_empty());
    }
}
