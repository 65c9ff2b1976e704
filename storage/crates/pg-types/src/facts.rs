//! What is written down of each Postgres major version ([`crate::PgMajor::facts`]).

/// The numbers that identify a major's on-disk formats.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionFacts {
    /// The major version as people say it.
    pub number: u32,
    /// First two bytes of every WAL page (`XLOG_PAGE_MAGIC`).
    pub wal_page_magic: u16,
    /// `pg_control_version` in `pg_control`.
    pub control_version: u32,
    /// `catalog_version_no` in `pg_control`; tells majors apart that share a control version.
    pub catalog_version: u32,
    /// Bytes of the `CheckPoint` struct, and of the body of a checkpoint record.
    pub checkpoint_bytes: usize,
    /// Where the checksum of `pg_control` stands, which is also the number of bytes it covers.
    pub control_crc_offset: usize,
    /// Bytes of a `pg_filenode.map`.
    pub relmap_bytes: usize,
    /// The lowest server version (`server_version_num`) whose WAL is understood: the minors of May 2026, which the
    /// oracle follows. They record the offset of the *next* multixact with each new one, as those before February
    /// 2026 did not.
    pub min_server_version: u32,
    /// The newest one that the oracle follows. What minors between and at these two do otherwise is in
    /// `wal_redo::minors`; a newer one is taken, and what it does otherwise is not known.
    pub newest_server_version: u32,
    /// First byte of a page-layout version field (`PG_PAGE_LAYOUT_VERSION`).
    pub page_layout_version: u8,
    /// How records are laid out where majors differ.
    pub records: RecordLayouts,
}

/// Layouts of record bodies that are not the same in every major.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordLayouts {
    /// One kind of `Heap2` record prunes and freezes a page, or makes dead line pointers unused, and its number says
    /// only on what occasion. Otherwise pruning, vacuum's second pass and freezing are three kinds.
    pub prune_and_freeze: bool,
    /// Bytes of an SLRU page number: records that make an SLRU page or truncate an SLRU.
    pub slru_page_number_bytes: usize,
    /// Bytes of a dropped statistics entry in a commit or abort.
    pub dropped_stats_bytes: usize,
    /// Where the line pointer numbers of a GiST deletion begin in its main data.
    pub gist_delete_numbers_at: usize,
    /// Bytes of the number of tuples in a hash index's vacuum record; it begins at 4, the line pointer numbers at 8.
    pub hash_vacuum_count_bytes: usize,
    /// Bytes before the line pointer numbers of an SP-GiST record that turns redirects into placeholders.
    pub spgist_redirects_at: usize,
    /// A hash record that frees an overflow page may name the page before it, as block 1, without changing it.
    pub hash_squeeze_may_only_name: bool,
    /// The checkpointer marks where a checkpoint's redo begins with a record of its own (`XLOG_CHECKPOINT_REDO`).
    pub checkpoint_redo: bool,
}
