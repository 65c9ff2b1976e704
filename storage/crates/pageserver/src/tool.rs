//! Commands that show stored files without a running pageserver: `weir-pageserver layer ...` and `index ...`.
//!
//! The commands only read, and may be used on the files of a running pageserver.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use blob::{IndexPart, Loaded, LocalLayerFile, RemoteLayer, Store, TimelineStore, stored_length};
use clap::{Args, Subcommand};
use layers::{LayerName, LayerReader, Value, Version};
use pg_types::{Key, TenantId, TimelineId};
use serde_json::json;

use crate::inventory::inventory;
use crate::key_tool::{self, KeyTool};
use crate::redo::describe_bytes;

/// The commands of `weir-pageserver` that look at what is stored, instead of serving.
#[derive(Subcommand, Debug)]
pub enum Tool {
    /// Look into layer files (docs/formats.md describes them).
    #[command(subcommand)]
    Layer(LayerTool),
    /// Look at the index of a timeline, the list of layers it is made of.
    #[command(subcommand)]
    Index(IndexTool),
    /// Look at the data keys of tenants whose layers and WAL are encrypted, and wrap them by another key.
    #[command(subcommand)]
    Keys(KeyTool),
    /// Print what an object store holds, tenant by tenant and timeline by timeline, with what the control plane has
    /// said of them, as JSON. Changes nothing, and may run beside the pageserver whose store it is.
    Inventory {
        /// As given to the pageserver, such as file:///var/lib/weir/objects or s3://bucket/prefix.
        #[arg(long)]
        object_store: String,
    },
    /// List the places at which tests let the pageserver die, one a line.
    #[command(hide = true)]
    CrashPoints,
}

/// The commands on layer files.
#[derive(Subcommand, Debug)]
pub enum LayerTool {
    /// Print what a layer file holds: a summary as JSON, or every version, one a line.
    ///
    /// Example: weir-pageserver layer dump --versions --key 'rel 1663/5/16384' objects/.../layers/0100...
    Dump {
        /// A layer file, of an object store in a local directory or of a local cache.
        file: PathBuf,
        /// Every version: key, LSN, position at that LSN, kind, bytes and, for a delta, the record it comes from.
        #[arg(long)]
        versions: bool,
        /// Only keys whose text contains this, such as 'rel 1663/5/16384 block 7'.
        #[arg(long, requires = "versions")]
        key: Option<String>,
    },
    /// Read layer files whole and check all that the format promises: checksums of file and blocks, order, block
    /// index, key table, bloom filter, footer, and that the name tells the truth. Exits with 1 if one is damaged.
    ///
    /// A damaged file in a local cache can simply be deleted: the pageserver fetches it again.
    Verify {
        /// Layer files, of an object store in a local directory or of a local cache.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// The commands on the index of a timeline.
#[derive(Subcommand, Debug)]
pub enum IndexTool {
    /// Print a timeline's newest index as JSON.
    Dump(Place),
    /// Check that every layer the index names is there with its size, and list objects it does not name (leftovers
    /// of a crash, removed when the timeline is opened next). Exits with 1 if a layer is missing or damaged.
    Verify {
        /// The timeline whose index is checked.
        #[command(flatten)]
        place: Place,
        /// Also fetch every layer and check it like `layer verify`.
        #[arg(long)]
        layers: bool,
    },
}

/// A timeline in an object store.
#[derive(Args, Debug)]
pub struct Place {
    /// As given to the pageserver, such as file:///var/lib/weir/objects.
    #[arg(long)]
    object_store: String,
    #[arg(long)]
    tenant: TenantId,
    #[arg(long)]
    timeline: TimelineId,
    /// As given to the pageserver; to check the contents of encrypted layers.
    #[arg(long)]
    key_file: Option<PathBuf>,
}

impl Place {
    fn open(&self) -> Result<TimelineStore> {
        let store = Store::from_address(&self.object_store).context("open the object store")?;
        let store = store.with_key_file(self.key_file.as_deref(), false)?;
        Ok(store.timeline(self.tenant, self.timeline))
    }

    async fn index(&self, timeline: &TimelineStore) -> Result<IndexPart> {
        match timeline.load().await.context("load the index")? {
            Loaded::Index(index) => Ok(*index),
            Loaded::Absent => bail!(
                "{} has no index of timeline {} of tenant {}",
                self.object_store,
                self.timeline,
                self.tenant
            ),
            Loaded::Deleting => bail!("timeline {} is being deleted", self.timeline),
        }
    }
}

/// Runs a command; what it finds goes to standard output. Fails when what is to be shown can't be read, and when a
/// layer or index that was checked is damaged or incomplete.
pub async fn run(tool: Tool) -> Result<()> {
    match tool {
        Tool::Layer(LayerTool::Dump {
            file,
            versions,
            key,
        }) => dump_layer(&file, versions, key.as_deref()),
        Tool::Layer(LayerTool::Verify { files }) => verify_layers(&files),
        Tool::Inventory { object_store } => {
            let store = Store::from_address(&object_store).context("open the object store")?;
            let found = inventory(&store).await;
            let found = found.with_context(|| format!("object store {object_store}"))?;
            println!("{}", serde_json::to_string_pretty(&found)?);
            Ok(())
        }
        Tool::Keys(tool) => key_tool::run(tool).await,
        Tool::CrashPoints => {
            crash::POINTS.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
        Tool::Index(IndexTool::Dump(place)) => {
            let index = place.index(&place.open()?).await?;
            println!("{}", serde_json::to_string_pretty(&index)?);
            Ok(())
        }
        Tool::Index(IndexTool::Verify { place, layers }) => {
            let timeline = place.open()?;
            let index = place.index(&timeline).await?;
            verify_index(&timeline, &index, layers).await
        }
    }
}

fn open_layer(path: &Path) -> Result<LayerReader<LocalLayerFile>> {
    let file = LocalLayerFile::open(path)?;
    Ok(LayerReader::open(path.display().to_string(), file)?)
}

fn dump_layer(path: &Path, versions: bool, wanted: Option<&str>) -> Result<()> {
    let reader = open_layer(path)?;
    if !versions {
        println!("{}", serde_json::to_string_pretty(&reader.check()?)?);
        return Ok(());
    }
    for found in reader.iter() {
        let (key, version) = found?;
        let text = key.to_string();
        if wanted.is_none_or(|wanted| text.contains(wanted)) {
            println!("{}", describe_version(&key, &version));
        }
    }
    Ok(())
}

/// One version as a line: key, LSN, seq, what it is.
fn describe_version(key: &Key, version: &Version) -> String {
    let seq = match version.seq {
        Version::GENERATED => "made".to_owned(),
        seq => seq.to_string(),
    };
    let bytes = version.value.payload().len();
    let what = match &version.value {
        Value::Image(_) => format!("image {bytes} bytes"),
        Value::Zero => "zero page".to_owned(),
        Value::Meta(_) => format!("metadata {bytes} bytes"),
        Value::Tombstone => "tombstone".to_owned(),
        Value::Delta {
            bytes: delta,
            starts_chain,
        } => {
            let starts = if *starts_chain {
                ", starts the chain"
            } else {
                ""
            };
            format!("delta {bytes} bytes, {}{starts}", describe_bytes(delta))
        }
    };
    format!("{key} | {} {seq} | {what}", version.lsn)
}

fn verify_layers(paths: &[PathBuf]) -> Result<()> {
    let mut damaged = 0;
    for path in paths {
        match verify_layer(path) {
            Ok(line) => println!("ok       {}: {line}", path.display()),
            Err(error) => {
                damaged += 1;
                println!("DAMAGED  {}: {error:#}", path.display());
            }
        }
    }
    anyhow::ensure!(damaged == 0, "{damaged} of {} files damaged", paths.len());
    Ok(())
}

fn verify_layer(path: &Path) -> Result<String> {
    let content = open_layer(path)?.check()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Objects carry the generation of their writer, `-` and 8 digits, behind the layer's name.
    let without_generation = name.len().checked_sub(9).and_then(|end| name.get(..end));
    let own = content.desc.name();
    let spellings = [Some(&*name), without_generation].into_iter().flatten();
    let mut names = spellings.filter_map(|it| it.parse::<LayerName>().ok());
    if names.any(|told| told != own) {
        bail!("its content is that of {own}, its name says otherwise");
    }
    Ok(format!(
        "{} versions of {} keys in {} blocks, {} deltas, {} images",
        content.versions, content.keys, content.blocks, content.deltas, content.images
    ))
}

async fn verify_index(timeline: &TimelineStore, index: &IndexPart, contents: bool) -> Result<()> {
    let stored = timeline.list_layers().await.context("list layers")?;
    let size_of = |wanted: &RemoteLayer| {
        let same = |it: &&RemoteLayer| it.object_name() == wanted.object_name();
        stored.iter().find(same).map(|it| it.desc.size)
    };
    let mut problems = Vec::new();
    for layer in &index.layers {
        let name = layer.object_name();
        match size_of(layer) {
            None => problems.push(format!("layer {name} is missing")),
            // The content of an encrypted one says the rest.
            Some(size)
                if size != layer.desc.size && Some(size) != stored_length(layer.desc.size) =>
            {
                problems.push(format!(
                    "layer {name} has {size} bytes, the index says {}",
                    layer.desc.size
                ))
            }
            Some(_) if contents => {
                let bytes = match timeline.get_layer(layer).await {
                    Ok(bytes) => bytes,
                    Err(error) if error.is_damage() => {
                        problems.push(error.to_string());
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let checked = LayerReader::open(name.clone(), bytes).and_then(|it| it.check());
                match checked {
                    Ok(content) if content.desc == layer.desc => {}
                    Ok(content) => problems.push(format!(
                        "layer {name} holds the content of {}",
                        content.desc.name()
                    )),
                    Err(error) => problems.push(error.to_string()),
                }
            }
            Some(_) => {}
        }
    }
    let named = |it: &&RemoteLayer| !index.layers.contains(it);
    let unnamed: Vec<String> = stored
        .iter()
        .filter(named)
        .map(RemoteLayer::object_name)
        .collect();
    let report = json!({
        "timeline": index.timeline,
        "generation": index.generation,
        "disk_consistent_lsn": index.disk_consistent_lsn,
        "layers": index.layers.len(),
        "contents_checked": contents,
        "not_named_by_the_index": unnamed,
        "problems": problems,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    anyhow::ensure!(
        problems.is_empty(),
        "{} layers can't be used",
        problems.len()
    );
    Ok(())
}
