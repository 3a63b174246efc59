//! Metrics of a node's disks, mounted file systems and sensors, and of GPUs beyond NVML.

use super::{MIB, Metric, ethernet, node_exporter_name, rows};
use crate::{
    DeviceClass::{Disk, Gpu, Mount, Sensor},
    unit::{CounterWidth::Bits64, Unit},
};

/// Kinds of file systems on a node's own disks or in its memory; others are shared with other nodes.
pub const LOCAL_FILESYSTEMS: [&str; 9] =
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"];

rows! {
    from ethernet::END;
    DISK_READ_BYTES, "Bytes read from the disk.",
        Metric::new_counter("gaunt_disk_read_bytes_total", Disk, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_disk_read_bytes_total")]);
    DISK_WRITE_BYTES, "Bytes written to the disk.",
        Metric::new_counter("gaunt_disk_write_bytes_total", Disk, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_disk_written_bytes_total")]);
    DISK_READS, "Reads that ended.",
        Metric::new_counter("gaunt_disk_reads_total", Disk, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_disk_reads_completed_total")]);
    DISK_WRITES, "Writes that ended.",
        Metric::new_counter("gaunt_disk_writes_total", Disk, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_disk_writes_completed_total")]);
    DISK_READ_TIME, "Time that reads took, summed over all of them.",
        Metric::new_counter("gaunt_disk_read_time_seconds_total", Disk, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_disk_read_time_seconds_total")]);
    DISK_WRITE_TIME, "Time that writes took, summed over all of them.",
        Metric::new_counter("gaunt_disk_write_time_seconds_total", Disk, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_disk_write_time_seconds_total")]);
    DISK_BUSY, "Time in which the disk had something to do.",
        Metric::new_counter("gaunt_disk_busy_seconds_total", Disk, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_disk_io_time_seconds_total")]);
    DISK_IN_FLIGHT, "Reads and writes under way at this moment.",
        Metric::new_gauge("gaunt_disk_requests_in_flight", Disk, Unit::Count, 1.0)
            .with_foreign(&[node_exporter_name("node_disk_io_now")]);
    MOUNT_INFO, "What the file system is, and where it comes from.",
        Metric::new_info_series("gaunt_mount_info", Mount, &["kind", "source"]).with_rare_changes();
    MOUNT_READ_BYTES, "Bytes that came from the servers of the file system.",
        Metric::new_counter("gaunt_mount_read_bytes_total", Mount, Unit::Bytes, Bits64)
            .with_history();
    MOUNT_WRITE_BYTES, "Bytes that went to the servers of the file system.",
        Metric::new_counter("gaunt_mount_write_bytes_total", Mount, Unit::Bytes, Bits64)
            .with_history();
    MOUNT_READS, "Read requests.",
        Metric::new_counter("gaunt_mount_reads_total", Mount, Unit::Count, Bits64);
    MOUNT_WRITES, "Write requests.",
        Metric::new_counter("gaunt_mount_writes_total", Mount, Unit::Count, Bits64);
    MOUNT_READ_TIME, "Time that read requests took from call to answer, summed over all of them.",
        Metric::new_counter("gaunt_mount_read_time_seconds_total", Mount, Unit::Seconds, Bits64)
            .with_history();
    MOUNT_WRITE_TIME, "Time that write requests took from call to answer, summed over all of them.",
        Metric::new_counter("gaunt_mount_write_time_seconds_total", Mount, Unit::Seconds, Bits64)
            .with_history();
    MOUNT_METADATA_OPERATIONS, "Requests about names and attributes.",
        Metric::new_counter("gaunt_mount_metadata_operations_total", Mount, Unit::Count, Bits64);
    MOUNT_METADATA_TIME, "Time that requests about names and attributes took, summed over all of them.",
        Metric::new_counter("gaunt_mount_metadata_time_seconds_total", Mount, Unit::Seconds, Bits64);
    MOUNT_RETRANSMITS, "Requests sent again because no answer came.",
        Metric::new_counter("gaunt_mount_retransmits_total", Mount, Unit::Count, Bits64);
    MOUNT_TIMEOUTS, "Requests to which no answer came in time.",
        Metric::new_counter("gaunt_mount_timeouts_total", Mount, Unit::Count, Bits64);
    MOUNT_SIZE, "Size of the file system.",
        Metric::new_gauge("gaunt_mount_size_bytes", Mount, Unit::Bytes, MIB).with_rare_changes();
    MOUNT_AVAILABLE, "Space that users without privileges may still fill.",
        Metric::new_gauge("gaunt_mount_available_bytes", Mount, Unit::Bytes, MIB);
    MOUNT_INODES, "Files that the file system can hold; 0 where it has no such limit.",
        Metric::new_gauge("gaunt_mount_inodes", Mount, Unit::Count, 1.0).with_rare_changes();
    MOUNT_FREE_INODES, "Files that can still be created.",
        Metric::new_gauge("gaunt_mount_free_inodes", Mount, Unit::Count, 1.0);
    MOUNT_READ_ONLY, "Whether nothing can be written.",
        Metric::new_gauge("gaunt_mount_read_only", Mount, Unit::Count, 1.0).with_rare_changes();
    SENSOR_TEMPERATURE, "Temperature at the sensor.",
        Metric::new_gauge("gaunt_sensor_temperature_celsius", Sensor, Unit::Celsius, 0.5);
    SENSOR_POWER, "Power at the sensor.",
        Metric::new_gauge("gaunt_sensor_power_watts", Sensor, Unit::Watts, 1.0);
    SENSOR_ENERGY, "Energy that went through the sensor.",
        Metric::new_counter("gaunt_sensor_energy_joules_total", Sensor, Unit::Joules, Bits64);
    SENSOR_INFO, "What the maker calls the sensor.",
        Metric::new_info_series("gaunt_sensor_info", Sensor, &["label"]).with_rare_changes();
    GPU_RAS_CORRECTED, "Errors that the GPU found by itself, over all of its blocks.",
        Metric::new_counter("gaunt_gpu_ras_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "corrected");
    GPU_RAS_UNCORRECTED, "Errors that the GPU found by itself, over all of its blocks.",
        Metric::new_counter("gaunt_gpu_ras_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "uncorrected");
}
