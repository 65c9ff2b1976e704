//! By which names certificates call parts. A certificate has the name of its part's kind, and where there are several of the
//! kind the part's own beside it (`safekeeper` and `safekeeper-2`, `compute` and `ID.compute`).

/// The control plane: API, worker, and the `weir` command.
pub const CONTROL: &str = "control";
/// What reads `/metrics`.
pub const PROMETHEUS: &str = "prometheus";
/// A pageserver.
pub const PAGESERVER: &str = "pageserver";
/// Any safekeeper.
pub const SAFEKEEPER: &str = "safekeeper";
/// Any compute's agent.
pub const COMPUTE: &str = "compute";

/// The parts that may come to a port of a kind, by the names in their certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admitted(pub &'static [&'static str]);

/// A safekeeper's port of WAL. The control plane changes the members of logs there.
pub const TO_WAL: Admitted = Admitted(&[COMPUTE, PAGESERVER, SAFEKEEPER, CONTROL]);
/// A safekeeper's management API. Safekeepers themselves, since what asks whether one is healthy has its identity.
pub const TO_SAFEKEEPER_API: Admitted = Admitted(&[CONTROL, PROMETHEUS, SAFEKEEPER]);
/// A pageserver's port of pages.
pub const TO_PAGES: Admitted = Admitted(&[COMPUTE]);
/// A pageserver's management API, where computes get what they start from.
pub const TO_PAGESERVER_API: Admitted = Admitted(&[CONTROL, PROMETHEUS, COMPUTE, PAGESERVER]);
/// A compute's agent. Not even the compute itself has to come there.
pub const TO_AGENT: Admitted = Admitted(&[CONTROL, PROMETHEUS]);
