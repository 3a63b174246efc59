//! The page of one tick: rendered in each format on first request, and cached until the next tick. A format that was
//! requested in the previous tick is rendered ahead, so that a scraper with a period of a second never waits.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use flate2::{Compression, write::GzEncoder};
use gaunt_schema::{
    Report,
    frame::ClientState,
    text::{CompatOptions, ExpositionFormat, write_page},
};
use hyper::body::Bytes;

use crate::tick_frames::TickFrames;

/// The formats of a page, in the order of [`MetricsPage::rendered_format`].
const FORMS: [ExpositionFormat; 2] = [ExpositionFormat::Text, ExpositionFormat::OpenMetrics];

/// A page repeats its labels on every line, so the fastest level already compresses it to a quarter.
const LEVEL: Compression = Compression::fast();

/// The initial capacity of a page in bytes: that of a node with 8 GPUs and 8 ports.
const PAGE: usize = 128 * 1024;

/// One report in every requested format.
pub struct MetricsPage {
    report: Arc<Report>,
    compat: CompatOptions,
    /// The rendered formats.
    rendered: [RenderedFormat; FORMS.len()],
    /// The report as frames.
    frames: TickFrames,
}

/// One rendered format of a page.
#[derive(Default)]
struct RenderedFormat {
    requested: AtomicBool,
    plain: OnceLock<Bytes>,
    compressed: OnceLock<Bytes>,
}

impl MetricsPage {
    /// The page of a report; nothing is rendered yet.
    pub fn new(report: Arc<Report>, compat: CompatOptions) -> Self {
        Self { report, compat, rendered: Default::default(), frames: TickFrames::default() }
    }

    /// The page of a report after `last`: the formats that were requested of that page are rendered now.
    #[must_use]
    pub fn from_previous(last: &Self, report: Arc<Report>, compat: CompatOptions) -> Self {
        let frames = last.frames.next(&report);
        let page = Self { report, compat, rendered: Default::default(), frames };
        page.render_ahead(last);
        page
    }

    /// Renders the formats that were requested of `last`.
    fn render_ahead(&self, last: &Self) {
        for (format, previous) in FORMS.into_iter().zip(&last.rendered) {
            if previous.requested.load(Ordering::Relaxed) {
                self.render_plain(format);
            }
        }
    }

    /// Whether the report has been sampled.
    pub(crate) fn is_sampled(&self) -> bool {
        self.report.node_time.is_some()
    }

    /// The page in a format, compressed or not.
    pub(crate) fn encode_page(&self, format: ExpositionFormat, gzip: bool) -> io::Result<Bytes> {
        let rendered = self.rendered_format(format);
        rendered.requested.store(true, Ordering::Relaxed);
        let body = self.render_plain(format);
        if !gzip {
            return Ok(body.clone());
        }
        if let Some(compressed) = rendered.compressed.get() {
            return Ok(compressed.clone());
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), LEVEL);
        encoder.write_all(body)?;
        let compressed = Bytes::from(encoder.finish()?);
        Ok(rendered.compressed.get_or_init(|| compressed).clone())
    }

    /// The page as a frame, for a client in this state.
    pub(crate) fn encode_frame(&self, client_state: ClientState) -> Bytes {
        self.frames.encode_frame(&self.report, client_state)
    }

    fn render_plain(&self, format: ExpositionFormat) -> &Bytes {
        self.rendered_format(format).plain.get_or_init(|| {
            let mut page = String::with_capacity(PAGE);
            write_page(&self.report, format, self.compat, &mut page);
            page.into()
        })
    }

    fn rendered_format(&self, format: ExpositionFormat) -> &RenderedFormat {
        &self.rendered[usize::from(format == ExpositionFormat::OpenMetrics)]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use gaunt_schema::{Device, UnixMs, catalogue::gpu, text::DcgmNames};

    use super::*;

    #[test]
    fn page_format_is_rendered_ahead_only_while_requested() {
        let after = |last: &MetricsPage| {
            MetricsPage::from_previous(last, Arc::default(), CompatOptions::default())
        };
        let first = MetricsPage::new(Arc::default(), CompatOptions::default());
        first.encode_page(ExpositionFormat::OpenMetrics, true).unwrap();
        let second = after(&first);
        let is_rendered = |page: &MetricsPage| {
            FORMS.map(|format| page.rendered_format(format).plain.get().is_some())
        };
        assert_eq!(is_rendered(&second), [false, true]);
        assert_eq!(is_rendered(&after(&second)), [false, false]);
    }

    #[test]
    fn page_format_is_rendered_once_and_compression_is_lossless() {
        let mut report = Report { node_time: Some(UnixMs(1_000)), ..Report::default() };
        let gpu = report.ensure_device(Device::new_gpu(0));
        report.push(gpu, gpu::POWER, 300.0);
        let page = MetricsPage::new(
            Arc::new(report),
            CompatOptions { dcgm: Some(DcgmNames::Before4_9), node: true, xid: true },
        );
        for format in FORMS {
            let body = page.encode_page(format, false).unwrap();
            let text = str::from_utf8(&body).unwrap();
            assert!(text.contains("\ngaunt_gpu_power_watts{gpu=\"0\"} 300\n"), "{text}");
            assert!(text.contains("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\","), "{text}");
            assert_eq!(text.ends_with("# EOF\n"), format == ExpositionFormat::OpenMetrics);
            let compressed = page.encode_page(format, true).unwrap();
            let mut decompressed = Vec::new();
            GzDecoder::new(&*compressed).read_to_end(&mut decompressed).unwrap();
            assert_eq!(decompressed, body);
            for (gzip, first) in [(false, body), (true, compressed)] {
                assert_eq!(page.encode_page(format, gzip).unwrap().as_ptr(), first.as_ptr());
            }
        }
    }
}
