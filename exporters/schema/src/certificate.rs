//! A certificate of gaunt itself, and when it expires.

use serde::{Deserialize, Serialize};

use crate::{SanitizedText, UnixMs};

/// A certificate that gaunt presents to its clients or to the servers that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CertificateLine {
    /// The file with it.
    pub file: SanitizedText,
    /// When it expires, or the one of its chain that expires first.
    pub expiry: UnixMs,
}
