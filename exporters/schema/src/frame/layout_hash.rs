//! The content hash of a layout: 128 bits of SHA-256 over its bytes.
//!
//! Layouts are shared among targets, of which one may be hostile: with a hash that can be forged it could make the
//! decoder read other targets' readings with its own layout. SHA-256 is sixty lines; a crate for it would add six more
//! dependencies.

use std::fmt;

/// Bytes of a block.
const BLOCK: usize = 64;

/// The first 32 bits of the fractional parts of the square roots of the first eight primes.
#[rustfmt::skip]
const START: [u32; 8] = [
    0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
];

/// The same of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// The content hash of a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutHash(pub(super) [u8; 16]);

impl LayoutHash {
    /// The hash of these bytes.
    pub fn of(content: &[u8]) -> Self {
        let whole = sha256(content);
        let mut name = [0; 16];
        name.copy_from_slice(&whole[..16]);
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

/// SHA-256 (FIPS 180-4).
fn sha256(content: &[u8]) -> [u8; 32] {
    let mut state = START;
    let whole = content.len() / BLOCK * BLOCK;
    let (blocks, rest) = content.split_at(whole);
    blocks.chunks_exact(BLOCK).for_each(|block| compress_block(&mut state, block));
    let mut tail = [0; 2 * BLOCK];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK - 8 { BLOCK } else { 2 * BLOCK };
    tail[end - 8..end].copy_from_slice(&(content.len() as u64 * 8).to_be_bytes());
    tail[..end].chunks_exact(BLOCK).for_each(|block| compress_block(&mut state, block));
    let mut out = [0; 32];
    for (out, word) in out.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_be_bytes());
    }
    out
}

#[expect(clippy::many_single_char_names, reason = "the standard names them so")]
fn compress_block(state: &mut [u32; 8], block: &[u8]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..64 {
        let (early, late) = (words[at - 15], words[at - 2]);
        let small = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let large = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        words[at] =
            words[at - 16].wrapping_add(small).wrapping_add(words[at - 7]).wrapping_add(large);
    }
    let mut eight = *state;
    for (word, round) in words.into_iter().zip(ROUNDS) {
        let [a, b, c, _, e, f, g, last] = eight;
        let one = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let first =
            last.wrapping_add(one).wrapping_add(chosen).wrapping_add(round).wrapping_add(word);
        let zero = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let most = a & b ^ a & c ^ b & c;
        eight.rotate_right(1);
        eight[4] = eight[4].wrapping_add(first);
        eight[0] = first.wrapping_add(zero.wrapping_add(most));
    }
    for (state, now) in state.iter_mut().zip(eight) {
        *state = state.wrapping_add(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_digits(content: &[u8]) -> String {
        let halves = sha256(content).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        halves.map(|half| char::from_digit(u32::from(half), 16).unwrap()).collect()
    }

    /// The examples of FIPS 180-4, and lengths around the end of a block.
    #[test]
    fn it_is_sha_256() {
        for (content, hash) in [
            (&b""[..], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(hex_digits(content), hash);
        }
        let million = vec![b'a'; 1_000_000];
        let hash = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(hex_digits(&million), hash);
        let all: std::collections::BTreeSet<_> =
            (0..200).map(|n| hex_digits(&million[..n])).collect();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn a_name_is_its_digits() {
        let name = LayoutHash::of(b"abc");
        assert_eq!(name.to_string(), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(LayoutHash::parse(&name.to_string()), Some(name));
        for wrong in
            ["", "ba78", "ba7816bf8f01cfea414140de5dae222g", "+a7816bf8f01cfea414140de5dae2223"]
        {
            assert_eq!(LayoutHash::parse(wrong), None, "{wrong}");
        }
    }
}
