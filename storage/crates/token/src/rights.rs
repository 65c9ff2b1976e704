//! What a token may grant.

/// A set of rights. One that this program does not know grants nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(u8);

impl Rights {
    /// Reading pages of a timeline, and its status.
    pub const READ_PAGES: Rights = Rights(1);
    /// Writing WAL of a timeline in a term of one's own, and what belongs to that: its start, its auxiliary files.
    pub const WRITE_WAL: Rights = Rights(2);
    /// Reading WAL of a timeline.
    pub const READ_WAL: Rights = Rights(4);
    /// Having WAL of a timeline kept, and saying up to where it is needed no more: reading alone moves nothing.
    pub const TRIM_WAL: Rights = Rights(32);
    /// The management API.
    pub const MANAGE: Rights = Rights(8);
    /// `/metrics`.
    pub const METRICS: Rights = Rights(16);

    /// All of both.
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Each right with its name in tokens.
    pub const NAMES: [(Rights, &str); 6] = [
        (Rights::READ_PAGES, "read_pages"),
        (Rights::WRITE_WAL, "write_wal"),
        (Rights::READ_WAL, "read_wal"),
        (Rights::TRIM_WAL, "trim_wal"),
        (Rights::MANAGE, "manage"),
        (Rights::METRICS, "metrics"),
    ];

    /// Whether all rights of `other` are among these.
    pub fn include(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights by their names in tokens; unknown names are left out.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Rights {
        let known = |name| Rights::NAMES.iter().find(|(_, known)| *known == name);
        names
            .into_iter()
            .filter_map(known)
            .fold(Rights::default(), |all, (right, _)| all.and(*right))
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Rights::NAMES
            .iter()
            .filter(|(right, _)| self.include(*right));
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        f.write_str(&names.join(" and "))
    }
}
