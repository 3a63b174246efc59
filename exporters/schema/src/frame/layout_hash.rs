//! The content hash of a layout: 128 bits of SHA-256 over its bytes.
//!
//! Layouts are shared among targets, of which one may be hostile: with a hash that can be forged it could make the
//! decoder read other targets' readings with its own layout.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The content hash of a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutHash(pub(super) [u8; 16]);

impl LayoutHash {
    /// The hash of these bytes.
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        let mut name = [0; 16];
        name.copy_from_slice(&digest[..16]);
        Self(name)
    }

    /// Parses a hash from its 32 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_hash_text_round_trip() {
        let hash = LayoutHash::of(b"abc");
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(LayoutHash::parse(&hash.to_string()), Some(hash));
        for text in
            ["", "ba78", "ba7816bf8f01cfea414140de5dae222g", "+a7816bf8f01cfea414140de5dae2223"]
        {
            assert_eq!(LayoutHash::parse(text), None, "{text}");
        }
    }
}
