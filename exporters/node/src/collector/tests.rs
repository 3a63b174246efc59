//! What is said of collectors that find, fail, wait, or have nothing to do.

use super::*;

struct Scripted(Vec<Result<Outcome, CollectError>>);

impl Collector for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn collect(&mut self, _: &mut Report) -> Result<Outcome, CollectError> {
        self.0.remove(0)
    }
}

#[test]
fn a_run_is_a_metric_and_a_failure_is_not_the_end() {
    let broken = || Err(CollectError::Driver("it hangs".to_owned()));
    let script = vec![
        Ok(Outcome::Pending("wait".to_owned())),
        Ok(Outcome::Found),
        broken(),
        Ok(Outcome::Nothing("no card".to_owned())),
        Ok(Outcome::FoundThat { message: "two".to_owned(), at: Some(UnixMs(4_500)) }),
    ];
    let mut collectors = Collectors::of(vec![Box::new(Scripted(script))]);
    let device = Device::collector("scripted");
    let mut said = Vec::new();
    for second in 1..=5 {
        let mut report = Report::default();
        collectors.run(UnixMs(second * 1000), &mut report);
        let read = |metric| report.reading(&device, metric).and_then(gaunt_schema::Reading::value);
        assert!(read(exporter::COLLECTOR_DURATION).is_some());
        let message = report.infos.first().map(|info| info.labels[0].1.to_string());
        let message = message.unwrap_or_default();
        said.push((
            read(exporter::COLLECTOR_SUCCESS),
            read(exporter::COLLECTOR_LAST_SUCCESS),
            message,
        ));
    }
    let expected = [
        (None, None, "wait"),
        (Some(1.0), Some(2.0), ""),
        (Some(0.0), Some(2.0), "it hangs"),
        (Some(1.0), Some(4.0), "no card"),
        (Some(1.0), Some(4.5), "two"),
    ];
    assert_eq!(said, expected.map(|(ok, at, text)| (ok, at, text.to_owned())));
}
