//! Any bytes as a text page: every line is accepted or rejected, nothing panics, no limit is exceeded.

use gaunt_schema::text::{PageLimits, PageLine, TextReader};

/// The input is the page.
pub fn check_input(body: &[u8]) {
    let limits = PageLimits {
        line_bytes: 200,
        labels: 4,
        samples: 50,
        name_bytes: 40,
        ..PageLimits::default()
    };
    for limits in [limits, PageLimits::default()] {
        let mut reader = TextReader::new(body, &limits);
        let (mut samples, mut last) = (0, 0);
        while let Some(line) = reader.next() {
            let number = match line {
                Ok(PageLine::Sample(sample)) => {
                    samples += 1;
                    assert!(sample.line.len() <= limits.line_bytes);
                    assert!(sample.labels.len() <= limits.labels);
                    assert!(sample.name.len() <= limits.name_bytes && !sample.name.is_empty());
                    assert_eq!(sample.value.is_nan(), sample.digits.eq_ignore_ascii_case("nan"));
                    // Parsed values equal those of the standard library.
                    if let Ok(value) = sample.digits.parse::<f64>() {
                        assert!(value.is_nan() || value.to_bits() == sample.value.to_bits());
                    }
                    reader.line_number()
                }
                Ok(_) => reader.line_number(),
                Err(reject) => reject.line,
            };
            assert!(number > last, "lines are counted");
            last = number;
        }
        assert!(samples <= limits.samples);
    }
}
