//! A page, and similar pages after it: decoding by its template gives the same result as the strict
//! parser, and at most the busiest CPU besides.

use gaunt_schema::{
    ScrapedPage,
    catalogue::host,
    text::{PageLimits, TemplateCache, TemplateState, decode_page},
};

/// The content of a page, compared bit by bit.
fn page_content(page: &ScrapedPage) -> impl PartialEq + std::fmt::Debug {
    let samples = page.report.samples.iter();
    let samples = samples.map(|s| {
        (s.metric, s.device, s.reading.value().map(f64::to_bits), s.reading.absence_reason())
    });
    let report = &page.report;
    (
        samples.collect::<Vec<_>>(),
        report.devices.to_vec(),
        report.infos.to_vec(),
        (report.node.clone(), report.node_time, page.dialect, page.bytes, page.rejected.clone()),
    )
}

fn apply_edits(page: &mut Vec<u8>, edits: &[u8]) {
    for edit in edits.chunks_exact(4) {
        if page.is_empty() {
            return;
        }
        let at = (usize::from(edit[1]) << 8 | usize::from(edit[2])) % page.len();
        match edit[0] % 6 {
            0 => page[at] = edit[3],
            1 => page.insert(at, edit[3]),
            2 => drop(page.remove(at)),
            // Replaces digits by digits: mostly another value.
            3 | 4 => {
                if let Some(found) = page[at..].iter().position(u8::is_ascii_digit) {
                    page[at + found] = b'0' + edit[3] % 10;
                }
            }
            _ => page.truncate(at),
        }
    }
}

/// The first bytes are edits, the rest is the page.
pub fn check_input(input: &[u8]) {
    let Some((edits, body)) = input.split_at_checked(24) else { return };
    let limits = PageLimits { line_bytes: 2_000, samples: 100, ..PageLimits::default() };
    let (layouts, mut memory) = (TemplateCache::new(1 << 20), TemplateState::default());
    let mut page = body.to_vec();
    for edits in edits.chunks(8) {
        for _ in 0..2 {
            let (ours, strict) =
                (layouts.decode_page(&mut memory, &page, &limits), decode_page(&page, &limits));
            match (ours, strict) {
                (Ok(mut ours), Ok(strict)) => {
                    if ours.report.samples.len() > strict.report.samples.len() {
                        let last = ours.report.samples.pop();
                        assert_eq!(last.map(|last| last.metric), Some(host::CPU_BUSIEST));
                    }
                    assert!(page_content(&ours) == page_content(&strict));
                }
                (ours, strict) => assert_eq!(ours.err(), strict.err()),
            }
        }
        apply_edits(&mut page, edits);
    }
    assert!(layouts.cache_stats().bytes <= 1 << 20);
}
