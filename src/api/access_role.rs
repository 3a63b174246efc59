//! Access roles: what a client of the aggregator may do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a token, or a user of the proxy, may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AccessRole {
    /// Ask questions.
    Read,
    /// Ask questions, and act on findings.
    Acknowledge,
    /// Deliver measurements; neither questions nor actions.
    Write,
    /// Everything, also what aggregators of one cluster ask each other.
    Admin,
}

impl AccessRole {
    /// The name in settings and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acknowledge => "acknowledge",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// Whether a client with this role may do what needs the other one.
    pub const fn permits(self, needed: Self) -> bool {
        match self {
            Self::Read => matches!(needed, Self::Read),
            Self::Acknowledge => matches!(needed, Self::Read | Self::Acknowledge),
            Self::Write => matches!(needed, Self::Write),
            Self::Admin => true,
        }
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_permits_what_its_documentation_says() {
        use AccessRole::{Acknowledge, Admin, Read, Write};
        let all = [Read, Acknowledge, Write, Admin];
        let permitted = |role: AccessRole| all.map(|needed| role.permits(needed));
        assert_eq!(permitted(Read), [true, false, false, false]);
        assert_eq!(permitted(Acknowledge), [true, true, false, false]);
        assert_eq!(permitted(Write), [false, false, true, false]);
        assert_eq!(permitted(Admin), [true, true, true, true]);
    }
}
