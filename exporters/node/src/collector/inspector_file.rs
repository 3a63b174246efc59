//! Files of NCCL's inspector among the text files: their collectives are devices of the node's report, so that frames
//! carry them as well.

use std::{collections::HashSet, time::Duration};

use gaunt_schema::{Device, DeviceClass, InfoSeries, Report, SanitizedText, text};

/// The most collectives of a node: 8 GPUs with 64 each.
pub(super) const MAX_COLLECTIVES: usize = 512;

/// A job writes its files twice a minute: what is older is of a job that ended.
pub(super) const VALID: Duration = Duration::from_mins(5);

/// The prefix of the names of its series.
const SERIES: &str = "nccl_";

/// The name of its file for a GPU, around the GPU's UUID.
const FILE: (&str, &str) = ("nccl_inspector_metrics_", ".prom");

/// Whether a file is the inspector's, by the name of one of its series.
pub(super) fn is_inspector_series(name: &str) -> bool {
    name.starts_with(SERIES)
}

/// Decodes the collectives of a file. A process that sees only its own GPU calls it number 0, as all others do: the
/// UUID in the file's name tells which it is.
pub(super) fn decode_collectives(file: &str, body: &[u8]) -> Report {
    let Ok(page) = text::decode_page(body, &text::PageLimits::default()) else {
        return Report::default();
    };
    let uuid = uuid_of_file(file);
    let mut report = Report::default();
    let mut numbers: Vec<Option<u32>> = Vec::with_capacity(page.report.devices.len());
    for device in &page.report.devices {
        let is_kept =
            device.class == DeviceClass::Collective && report.devices.len() < MAX_COLLECTIVES;
        numbers.push(is_kept.then_some(report.devices.len() as u32));
        if is_kept {
            let mut device = device.clone();
            if let Some(uuid) = &uuid {
                device.set_first_key(uuid);
            }
            report.devices.push(device);
        }
    }
    copy_series(&page.report, &numbers, &mut report);
    report
}

/// Adds the collectives of several files to a report. Returns how many are left out: beyond the limit, or because
/// another file has the same.
pub(super) fn add_collectives<'a>(
    files: impl Iterator<Item = &'a Report>,
    report: &mut Report,
) -> usize {
    let (mut known, mut left_out): (HashSet<Device>, usize) = Default::default();
    for file in files {
        let mut numbers: Vec<Option<u32>> = Vec::with_capacity(file.devices.len());
        for device in &file.devices {
            let is_kept = known.len() < MAX_COLLECTIVES && known.insert(device.clone());
            left_out += usize::from(!is_kept);
            numbers.push(is_kept.then(|| {
                report.devices.push(device.clone());
                report.devices.len() as u32 - 1
            }));
        }
        copy_series(file, &numbers, report);
    }
    left_out
}

/// Copies the infos and samples of those devices that have a number in the other report.
fn copy_series(from: &Report, numbers: &[Option<u32>], to: &mut Report) {
    let number = |device: u32| numbers.get(device as usize).copied().flatten();
    for info in &from.infos {
        if let Some(device) = number(info.device) {
            to.infos.push(InfoSeries { device, ..info.clone() });
        }
    }
    for sample in &from.samples {
        if let Some(device) = number(sample.device) {
            to.push(device, sample.metric, sample.reading);
        }
    }
}

/// The UUID in a file name, in NVML's form.
fn uuid_of_file(name: &str) -> Option<SanitizedText> {
    let uuid = name.strip_prefix(FILE.0)?.strip_suffix(FILE.1)?;
    let is_uuid =
        uuid.len() == 36 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uuid.then(|| SanitizedText::new(&format!("GPU-{uuid}")))
}

#[cfg(test)]
mod tests {
    use gaunt_schema::catalogue::collective;

    use super::*;

    const UUID: &str = "8674351b-fff7-56c3-f545-26313154b8ed";

    fn inspector_text(collective: &str, microseconds: u32) -> String {
        format!(
            "nccl_collective_exec_time_microseconds{{version=\"v5.1\",slurm_job_id=\"7\",node=\"n1\",gpu=\"GPU0\",\
             comm_name=\"dp\",n_nodes=\"4\",nranks=\"32\",collective=\"{collective}\",message_size=\"4-5MB\",\
             algo_proto=\"RING_LL\"}} {microseconds}\nother_series 1\n"
        )
    }

    fn device_names(report: &Report) -> Vec<String> {
        let names =
            report.devices.iter().map(|device| format!("{} {}", device.key[0], device.key[1]));
        names.collect()
    }

    #[test]
    fn collectives_are_named_for_the_uuid_of_their_file() {
        let name = format!("nccl_inspector_metrics_{UUID}.prom");
        let body = inspector_text("AllReduce", 5_000);
        let file = decode_collectives(&name, body.as_bytes());
        assert_eq!(device_names(&file), [format!("GPU-{UUID} dp AllReduce 4-5MB RING_LL 32")]);
        let duration = file.find_reading(&file.devices[0], collective::DURATION);
        assert_eq!(duration.and_then(gaunt_schema::Reading::value), Some(0.005));
        assert_eq!(file.infos.len(), 1);
        // Another file keeps the number that the process gave the GPU.
        let file = decode_collectives("nccl.prom", body.as_bytes());
        assert_eq!(device_names(&file), ["0 dp AllReduce 4-5MB RING_LL 32"]);
        assert_eq!(uuid_of_file("nccl_inspector_metrics_x.prom"), None);
    }

    #[test]
    fn collectives_of_several_files_are_each_added_once_and_bounded() {
        let file = |name: &str| decode_collectives("a.prom", inspector_text(name, 9).as_bytes());
        let (one, other) = (file("AllReduce"), file("AllGather"));
        let mut report = Report::default();
        report.ensure_device(Device::new_node());
        assert_eq!(add_collectives([&one, &other, &one].into_iter(), &mut report), 1);
        assert_eq!((report.devices.len(), report.infos.len(), report.samples.len()), (3, 2, 2));
        assert_eq!(report.samples[1].device, 2);
        let many: Vec<Report> = (0..600).map(|number| file(&format!("Op{number}"))).collect();
        let mut report = Report::default();
        assert_eq!(add_collectives(many.iter(), &mut report), 600 - MAX_COLLECTIVES);
    }
}
