//! Why a connection ended, for metrics and the log.

use crate::accept::Refused;
use crate::relay::End;

/// Why a connection ended: a word for metrics, and a text for the log.
#[derive(Debug)]
pub struct Why(pub &'static str, pub String);

impl From<Refused> for Why {
    fn from(refused: Refused) -> Why {
        match refused {
            Refused::Broken(text) => Why("not_a_client", text),
            Refused::Fatal(fatal) => Why("refused", fatal.message),
        }
    }
}

impl From<End> for Why {
    fn from(end: End) -> Why {
        match end {
            End::Client { said: true } => Why("client", "the client said goodbye".to_owned()),
            End::Client { said: false } => {
                Why("client", "the client closed the connection".to_owned())
            }
            End::ClientBroke(error) => Why("client_broke", error.to_string()),
            End::Compute => Why("compute", "the compute closed the connection".to_owned()),
            End::ComputeBroke(error) => Why("compute_broke", error.to_string()),
            End::Shutdown => Why("shutdown", "the proxy shuts down".to_owned()),
        }
    }
}
