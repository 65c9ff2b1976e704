//! What the tests against real Postgres share. No test uses all of it.

#![allow(dead_code)]

pub mod cluster;
pub mod files;
pub mod recorded;
pub mod servers;
pub mod trees;
pub mod workload;
