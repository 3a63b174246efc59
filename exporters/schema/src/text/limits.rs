//! The limits of a page: one for everything that a sender could make long.

/// The limits of one page. Content over a limit is rejected and counted, never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Bytes of the whole page. A node of 8 GPUs sends 0.2 MB; sixteen MiB allow 80 times that, and keep a thousand
    /// pages in flight within the memory of one machine.
    pub body_bytes: usize,
    /// Bytes of one line. The longest legitimate lines are info series of a few kB.
    pub line_bytes: usize,
    /// Labels of one series. Real series have 3 to 20; comparing two series costs at most the square of this.
    pub labels: usize,
    /// Samples of one page: some 200 nodes' worth, so that a page that repeats other nodes still fits.
    pub samples: usize,
    /// Bytes of a metric or label name. The longest in use are near 100.
    pub name_bytes: usize,
    /// Bytes of a label value as on the page. Kernel command lines and messages fit.
    pub value_bytes: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            line_bytes: 64 << 10,
            labels: 64,
            samples: 200_000,
            name_bytes: 1 << 10,
            value_bytes: 16 << 10,
        }
    }
}
