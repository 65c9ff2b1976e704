//! Why a connection ended, for metrics and the log.

use crate::accept::Refused;
use crate::relay::End;

/// Why a connection ended: a word for metrics, and a text for the log.
#[derive(Debug)]
pub struct EndReason(pub &'static str, pub String);

impl From<Refused> for EndReason {
    fn from(refused: Refused) -> EndReason {
        match refused {
            Refused::Broken(text) => EndReason("not_a_client", text),
            Refused::Fatal(fatal) => EndReason("refused", fatal.message),
        }
    }
}

impl From<End> for EndReason {
    fn from(end: End) -> EndReason {
        match end {
            End::Client { said: true } => EndReason("client", "the client said goodbye".to_owned()),
            End::Client { said: false } => {
                EndReason("client", "the client closed the connection".to_owned())
            }
            End::ClientBroke(error) => EndReason("client_broke", error.to_string()),
            End::Compute => EndReason("compute", "the compute closed the connection".to_owned()),
            End::ComputeBroke(error) => EndReason("compute_broke", error.to_string()),
            End::Shutdown => EndReason("shutdown", "the proxy shuts down".to_owned()),
        }
    }
}
