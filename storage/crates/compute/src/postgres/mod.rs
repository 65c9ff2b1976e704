//! Stock Postgres below the agent: its data directory, its process, its superuser.

mod admin;
mod apply;
mod beneath;
pub mod cgroups;
mod config;
pub mod confine;
mod data;
pub mod init;
pub mod limits;
mod orphans;
pub mod ports;
mod process;
mod settings;
pub mod system_calls;
pub mod trial;
mod user;

pub use admin::{Admin, AdminError, Look};
pub use apply::{apply, drop_named};
pub use config::{Files, SLOT, STANDBY};
pub use data::{DataDirectory, SERVED, make_directory};
pub use orphans::adopt_orphans;
pub use process::{Exit, Postmaster, PostmasterHandle};
pub use settings::{InForce, SettingsError, SettingsFile};
pub use user::OsUser;
