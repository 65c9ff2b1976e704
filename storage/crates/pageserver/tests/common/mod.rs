//! A pageserver in this process, a stock Postgres started from its bundle, and WAL carried from one to the
//! other by file.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub mod compare;
pub mod level_0;
pub mod neighbour;
pub mod pages;
pub mod postgres;
pub mod server;
pub mod written_wal;
