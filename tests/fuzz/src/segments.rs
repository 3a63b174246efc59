//! Any bytes as a segment of a recording: unchanged, as a block after a valid header, and as entries with
//! valid checksums. Nothing panics; every byte belongs to a block or is counted as lost.

use gaunt_engine::record::decode_segment;
use gaunt_schema::text::PageLimits;

/// Bytes of the header of a segment.
const HEADER: usize = 28;

/// A header as a recorder writes it.
fn segment_header() -> Vec<u8> {
    let mut bytes = b"gauntrec".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(1_000_u32.to_le_bytes());
    bytes.extend(1_700_000_000_000_i64.to_le_bytes());
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// A block with the right checksum around any payload.
fn segment_block(payload: &[u8], size: u32) -> Vec<u8> {
    let mut bytes = vec![0xb1, 0x0c, 0x4b, 0x47];
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(1_700_000_000_000_i64.to_le_bytes());
    bytes.extend(1_700_000_001_000_i64.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes);
    sum.update(payload);
    bytes.extend(sum.finalize().to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn read_blocks(bytes: &[u8]) -> usize {
    let limits = PageLimits { samples: 100, ..PageLimits::default() };
    let Ok(segment) = decode_segment(bytes) else { return 0 };
    for block in &segment.blocks {
        for (_, delivery) in block.decode_deliveries(&limits) {
            // Any content can be displayed.
            assert!(!format!("{delivery:?}").is_empty());
        }
    }
    segment.blocks.len()
}

/// The first byte says what the others are.
pub fn check_input(input: &[u8]) {
    let [kind, bytes @ ..] = input else { return };
    match kind % 4 {
        0 => drop(read_blocks(bytes)),
        1 => {
            // Damage in the middle loses no block after it.
            let whole = [segment_header(), bytes.to_vec(), segment_block(&[], 0)].concat();
            let segment = decode_segment(&whole).expect("the header is right");
            assert!(segment.lost <= whole.len() - HEADER);
            assert!(
                !segment.blocks.is_empty()
                    || bytes.windows(4).any(|part| part == [0xb1, 0x0c, 0x4b, 0x47])
            );
            read_blocks(&whole);
        }
        2 => {
            // Arbitrary entries, compressed correctly.
            let packed = zstd::bulk::compress(bytes, 1).expect("memory is enough");
            let whole = [segment_header(), segment_block(&packed, bytes.len() as u32)].concat();
            assert_eq!(read_blocks(&whole), 1);
        }
        _ => {
            // The compressed content differs from what the header declares.
            let whole = [segment_header(), segment_block(bytes, 1 << 16)].concat();
            assert_eq!(read_blocks(&whole), 1);
        }
    }
}
