//! Who may do what at a part's ports: JSON web tokens (RFC 7519), signed with Ed25519 by the control plane, and checked
//! here by each part that is asked ([ADR 63](../../../../docs/adr/0063-internal-ports-authenticate.md)).
//!
//! [`verify`](verify::verify) and [`Claims::allow`](claims::Claims::allow) are pure: keys, token and time come in, a
//! reason comes out. [`Gate`](gate::Gate) joins them with the file of public keys, counts and logs what it refuses, and
//! [`http::protect`] puts it before an axum router. [`Watched`](watched::Watched) is a file that is read again when it
//! changes: the public keys, and the token that a part shows to others.
//!
//! Invariants:
//!
//! - The algorithm is EdDSA, whatever the token says; the token only chooses among the keys of the key set.
//! - No byte of the claims is looked at before the signature has been checked.
//! - A token, or a part of it, is in no log, no metric, no error and no debug output.
//! - A route that no rule names needs the right to manage all tenants.
//!
//! Nothing here is durable. A crash loses nothing: keys and tokens are read again at the next start.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod claims;
pub mod gate;
pub mod http;
pub mod keys;
pub mod limits;
pub mod options;
pub mod own;
pub mod refusal;
pub mod rights;
pub mod verify;
pub mod watched;

pub use claims::{Claims, Need, Scope};
pub use gate::Gate;
pub use keys::KeySet;
pub use options::TokenOptions;
pub use own::OwnToken;
pub use refusal::Refusal;
pub use rights::Rights;
