//! FFI bindings for a network driver's own statistics: the ioctl behind `ethtool -S`, read-only.

#![expect(unsafe_code, reason = "an ioctl takes addresses")]

use std::{
    ffi::c_void,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// The ioctl of ethtool, from `linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Commands, from `linux/ethtool.h`: the sizes of sets of names, the names of a set, the statistics.
const GET_SET_SIZES: u32 = 0x37;
const GET_NAMES: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;

/// The set that names the statistics.
const STATISTICS_SET: u32 = 1;

/// The length of each name, zero-padded.
const NAME: usize = 32;

/// The most statistics that a card can have: with 128 queues they are some thousands. The kernel writes as many as the
/// card has at that moment, whatever number was requested, so every buffer has space for all.
const MAX_STATISTICS: usize = 32_768;

/// Queries to a network driver.
pub(crate) trait DriverStatistics: Send {
    /// The index of the network device of this name in this process's network namespace.
    fn device_index(&self, device: &str) -> io::Result<u32>;

    /// The names of the driver's statistics, in order.
    fn statistic_names(&self, device: &str) -> io::Result<Vec<String>>;

    /// The statistics, in the order of their names; an error if their number is no longer `count`.
    fn read_statistics(&self, device: &str, count: usize, values: &mut Vec<u64>) -> io::Result<()>;
}

/// The ioctl on a socket.
pub(crate) struct EthtoolSocket(OwnedFd);

/// The kernel's `struct ifreq` with an address in it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut c_void,
    rest: [u8; 16],
}

impl EthtoolSocket {
    /// Opens a socket for the ioctl; any will do.
    pub(crate) fn open_socket() -> io::Result<Self> {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(family, SocketType::DGRAM, flags, None)?))
    }

    /// Sends a command for `device` to the kernel. The buffer begins with the command and has space for the longest
    /// reply.
    fn send_command(&self, device: &str, buffer: &mut [u64]) -> io::Result<()> {
        let mut name = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        let max_length = name.len() - 1;
        if device.len() > max_length {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        name[..device.len()].copy_from_slice(device.as_bytes());
        let mut request =
            InterfaceRequest { name, data: buffer.as_mut_ptr().cast(), rest: [0; 16] };
        // SAFETY: the request has the layout and at least the size of `struct ifreq`, its name ends with a zero, and
        // its data points to a buffer that outlives the call, is aligned for words of eight bytes, and has space for
        // the longest answer: three words for sizes, and `MAX_STATISTICS` names or values.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The current number of statistics of a device.
    fn count_statistics(&self, device: &str) -> io::Result<usize> {
        // The command and a reserved word; a mask of sets; space for the size of one.
        let mut buffer = [pack_words(GET_SET_SIZES, 0), 1 << STATISTICS_SET, 0];
        self.send_command(device, &mut buffer)?;
        if buffer[1] == 0 {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let count = unpack_words(buffer[2]).0 as usize;
        if count > MAX_STATISTICS {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(count)
    }
}

impl DriverStatistics for EthtoolSocket {
    fn device_index(&self, device: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.0, device)?)
    }

    fn statistic_names(&self, device: &str) -> io::Result<Vec<String>> {
        let count = self.count_statistics(device)?;
        let mut buffer = vec![0_u64; 2 + MAX_STATISTICS * NAME / size_of::<u64>()];
        buffer[0] = pack_words(GET_NAMES, STATISTICS_SET);
        buffer[1] = pack_words(count as u32, 0);
        self.send_command(device, &mut buffer)?;
        // The header is three words of four bytes.
        let values = buffer.iter().take(2 + count * NAME / size_of::<u64>());
        let bytes: Vec<u8> = values.flat_map(|value| value.to_ne_bytes()).skip(12).collect();
        Ok(bytes.chunks_exact(NAME).take(count).map(parse_name).collect())
    }

    fn read_statistics(&self, device: &str, count: usize, values: &mut Vec<u64>) -> io::Result<()> {
        // Fresh zero pages are not touched: what the card does not fill uses no memory.
        let mut buffer = vec![0_u64; 1 + MAX_STATISTICS];
        buffer[0] = pack_words(GET_STATISTICS, count as u32);
        self.send_command(device, &mut buffer)?;
        if unpack_words(buffer[0]).1 as usize != count {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        values.clear();
        values.extend_from_slice(&buffer[1..=count]);
        Ok(())
    }
}

/// Packs two words of four bytes in memory order.
fn pack_words(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Unpacks the two words of four bytes in one of eight, in memory order.
fn unpack_words(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |start: usize| {
        u32::from_ne_bytes([bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]])
    };
    (half(0), half(4))
}

/// A name without its padding; some drivers append a blank.
fn parse_name(padded: &[u8]) -> String {
    let text = padded.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_words_keep_memory_order() {
        let word = pack_words(0x1122_3344, 0x5566_7788);
        assert_eq!(unpack_words(word), (0x1122_3344, 0x5566_7788));
        assert_eq!(word.to_ne_bytes()[..4], 0x1122_3344_u32.to_ne_bytes());
    }

    #[test]
    fn statistic_names_end_at_first_zero_without_blanks() {
        let mut padded = [0; NAME];
        padded[..21].copy_from_slice(b"tx_pause_storm_events");
        padded[21] = b' ';
        padded[23] = b'x';
        assert_eq!(parse_name(&padded), "tx_pause_storm_events");
        assert_eq!(parse_name(&[b'a'; NAME]), "a".repeat(NAME));
    }

    #[test]
    fn kernel_answers_for_existing_devices_only() {
        let kernel = EthtoolSocket::open_socket().unwrap();
        // Every network namespace has a loopback device, whose driver has no statistics.
        assert_eq!(kernel.device_index("lo").unwrap(), 1);
        assert_eq!(kernel.statistic_names("lo").unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            kernel.statistic_names("gaunt-none").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        let long = kernel.statistic_names("a-name-that-is-too-long").unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn drivers_of_this_machine_give_one_value_per_name() {
        let kernel = EthtoolSocket::open_socket().unwrap();
        for device in std::fs::read_dir("/sys/class/net").unwrap() {
            let device = device.unwrap().file_name().into_string().unwrap();
            let Ok(names) = kernel.statistic_names(&device) else { continue };
            assert!(names.iter().all(|name| !name.is_empty()), "{device}: {names:?}");
            let mut values = Vec::new();
            kernel.read_statistics(&device, names.len(), &mut values).unwrap();
            assert_eq!(values.len(), names.len(), "{device}");
            let error = kernel.read_statistics(&device, names.len() + 1, &mut values).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{device}");
        }
    }
}
