//! node_exporter's file systems: their size and what is left of it. Only those that keep data: images are always full, and
//! what lives in memory or in a container ends with it.

use super::{
    custom_handler::CustomHandler,
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    dialect_table::DecodeContext,
    report_builder::{ReportBuilder, has_info, label_text},
};
use crate::{
    DeviceClass, Dialect, MetricId,
    catalogue::{UnitScale::Same, hardware},
    text::{Reason, TextSample},
};

/// Its names, and what they are here.
const NAMES: [(&str, MetricId); 5] = [
    ("node_filesystem_size_bytes", hardware::MOUNT_SIZE),
    ("node_filesystem_avail_bytes", hardware::MOUNT_AVAILABLE),
    ("node_filesystem_files", hardware::MOUNT_INODES),
    ("node_filesystem_files_free", hardware::MOUNT_FREE_INODES),
    ("node_filesystem_readonly", hardware::MOUNT_READ_ONLY),
];

/// The handlers of its names.
pub(super) const SPECIAL: [CustomHandler; 5] =
    [handler(0), handler(1), handler(2), handler(3), handler(4)];

const fn handler(index: usize) -> CustomHandler {
    let (name, _) = NAMES[index];
    CustomHandler { name, dialect: Dialect::NodeExporter, decode: decode_filesystem }
}

/// Kinds of file systems that are not looked at, sorted: images, layers of containers, memory, firmware.
const SKIPPED_KINDS: [&str; 15] = [
    "autofs",
    "cramfs",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "fuse.lxcfs",
    "iso9660",
    "msdos",
    "nsfs",
    "overlay",
    "ramfs",
    "squashfs",
    "tmpfs",
    "udf",
    "vfat",
];

/// Folders of container runtimes and of packages, whose mounts repeat others and come and go.
const SKIPPED_FOLDERS: [&str; 6] = [
    "/var/lib/kubelet/",
    "/var/lib/containerd/",
    "/var/lib/docker/",
    "/var/lib/containers/",
    "/run/",
    "/snap/",
];

fn decode_filesystem<'a>(
    _: &mut DecodeContext,
    builder: &mut ReportBuilder<'a>,
    sample: &TextSample<'_, 'a>,
) -> Result<DecodeOp, Reason> {
    let kind = label_text(sample, "fstype").ok_or(Reason::NoDevice)?;
    let folder = label_text(sample, "mountpoint").ok_or(Reason::NoDevice)?;
    if SKIPPED_KINDS.contains(&&*kind)
        || SKIPPED_FOLDERS.iter().any(|start| folder.starts_with(start))
    {
        return Ok(DecodeOp::Ignore);
    }
    let device = builder
        .device_by_labels(DeviceClass::Mount, &["mountpoint"], sample)
        .ok_or(Reason::NoDevice)?;
    if !has_info(&builder.report, device, hardware::MOUNT_INFO) {
        let source = label_text(sample, "device").unwrap_or_default();
        let labels = [("kind", &*kind), ("source", &*source)];
        builder.report.add_info(device, hardware::MOUNT_INFO, &labels);
    }
    let known = NAMES.iter().find(|(name, _)| *name == sample.name);
    let Some((_, metric)) = known else { return Ok(DecodeOp::Ignore) };
    builder.plan_foreign_reading(device, *metric, ValueRule::of(*metric, Same, BlankValues::Never))
}

#[cfg(test)]
mod tests {
    use crate::{
        Device, DeviceClass,
        catalogue::hardware,
        dialect::exporter_page_tests::{assert_info, assert_values, decode_clean},
    };

    #[test]
    fn file_systems_that_keep_data_have_sizes_and_others_are_left_out() {
        let line = |name: &str, labels: [&str; 3], value: &str| {
            let [device, kind, folder] = labels;
            format!(
                "node_filesystem_{name}{{device=\"{device}\",fstype=\"{kind}\",mountpoint=\"{folder}\",device_error=\"\"}} {value}\n"
            )
        };
        let scratch = ["/dev/nvme1n1p1", "xfs", "/scratch"];
        let data = ["10.0.0.5:/data", "nfs4", "/mnt/data set"];
        let mut page = String::new();
        for (labels, size, left) in [(scratch, "1.6e+12", "0"), (data, "2.2e+14", "6.38e+13")] {
            page += &line("size_bytes", labels, size);
            page += &line("avail_bytes", labels, left);
            page += &line("readonly", labels, "0");
        }
        page += &line("files", scratch, "5e+06");
        page += &line("files_free", scratch, "12");
        for labels in [
            ["tmpfs", "tmpfs", "/run/lock"],
            ["/dev/loop3", "squashfs", "/snap/core20/1"],
            ["/dev/sda1", "vfat", "/boot/efi"],
            ["overlay", "overlay", "/var/lib/docker/overlay2/1/merged"],
            ["/dev/rbd1", "ext4", "/var/lib/kubelet/pods/1/volumes/x"],
        ] {
            page += &line("avail_bytes", labels, "0");
        }
        let report = decode_clean(&page).report;
        let scratch = Device::new_mount("/scratch");
        assert_values(
            &report,
            &scratch,
            &[
                (hardware::MOUNT_SIZE, 1.6e12),
                (hardware::MOUNT_AVAILABLE, 0.0),
                (hardware::MOUNT_INODES, 5e6),
                (hardware::MOUNT_FREE_INODES, 12.0),
                (hardware::MOUNT_READ_ONLY, 0.0),
            ],
        );
        assert_info(
            &report,
            &scratch,
            hardware::MOUNT_INFO,
            &[("kind", "xfs"), ("source", "/dev/nvme1n1p1")],
        );
        let data = Device::new_mount("/mnt/data set");
        assert_info(
            &report,
            &data,
            hardware::MOUNT_INFO,
            &[("kind", "nfs4"), ("source", "10.0.0.5:/data")],
        );
        let mounts = report.devices.iter().filter(|device| device.class == DeviceClass::Mount);
        assert_eq!(mounts.count(), 2);
    }
}
