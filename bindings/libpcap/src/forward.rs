//! Functions that the system's libpcap carries out unchanged, and the two macros that pass calls on.
//!
//! | macro | call |
//! |---|---|
//! | `real!` | a function of the system's libpcap; its value for failure if that does not have it |
//! | `forward!` | exports functions that are `real!` and nothing else |
//! | `with_twin!` | exports functions on a handle; on one of ours they are called on its twin |

use crate::c::{Dumper, EtherProtocol, File, Header, Instruction, Pcap, Program};
use crate::slots;
use libc::{addrinfo, c_char, c_int, c_long, c_uchar, c_uint, c_void};

/// Calls a function of the system's libpcap.
macro_rules! real {
    ($name:ident($($arg:expr => $type:ty),*) -> $result:ty, $failure:expr) => {{
        use std::sync::atomic::AtomicPtr;
        static PLACE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => panic!("a name without NUL"),
        };
        match $crate::real::symbol(&PLACE, NAME) {
            // SAFETY: libpcap's headers declare the function with these types.
            Some(found) => unsafe {
                let call: unsafe extern "C" fn($($type),*) -> $result =
                    std::mem::transmute::<*mut std::ffi::c_void, _>(found);
                call($($arg),*)
            },
            None => $failure,
        }
    }};
}
pub(crate) use real;

macro_rules! forward {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $failure:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in libpcap's manual.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            real!($name($($arg => $type),*) -> $result, $failure)
        }
    )*};
}

macro_rules! with_twin {
    ($(
        fn $name:ident($pcap:ident: *mut Pcap $(, $arg:ident: $type:ty)*) -> $result:ty
            = $failure:expr;
    )*) => {$(
        /// As in libpcap; on a handle of ours it is called on its twin.
        ///
        /// # Safety
        /// As in libpcap's manual.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($pcap: *mut Pcap $(, $arg: $type)*) -> $result {
            match slots::real_or_twin($pcap) {
                Some(found) => {
                    real!($name(found.pcap => *mut Pcap $(, $arg => $type)*) -> $result, $failure)
                }
                None => $failure,
            }
        }
    )*};
}

const ERROR: c_int = crate::c::ERROR;

forward! {
    /// As in libpcap.
    fn bpf_dump(program: *const Program, option: c_int) -> () = ();
    /// As in libpcap.
    fn bpf_filter(
        program: *const Instruction, packet: *const c_uchar, len: c_uint, caplen: c_uint
    ) -> c_uint = 0;
    /// As in libpcap.
    fn bpf_image(
        instruction: *const Instruction, number: c_int
    ) -> *mut c_char = std::ptr::null_mut();
    /// As in libpcap.
    fn bpf_validate(program: *const Instruction, len: c_int) -> c_int = 0;
    /// As in libpcap.
    fn pcap_datalink_name_to_val(name: *const c_char) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_datalink_val_to_description(link: c_int) -> *const c_char = std::ptr::null();
    /// As in libpcap.
    fn pcap_datalink_val_to_description_or_dlt(link: c_int) -> *const c_char = std::ptr::null();
    /// As in libpcap.
    fn pcap_datalink_val_to_name(link: c_int) -> *const c_char = std::ptr::null();
    /// As in libpcap.
    fn pcap_dump(dumper: *mut c_uchar, header: *const Header, packet: *const c_uchar) -> () = ();
    /// As in libpcap.
    fn pcap_dump_close(dumper: *mut Dumper) -> () = ();
    /// As in libpcap.
    fn pcap_dump_file(dumper: *mut Dumper) -> *mut File = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_dump_flush(dumper: *mut Dumper) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_dump_ftell(dumper: *mut Dumper) -> c_long = -1;
    /// As in libpcap.
    fn pcap_dump_ftell64(dumper: *mut Dumper) -> i64 = -1;
    /// As in libpcap.
    fn pcap_ether_aton(text: *const c_char) -> *mut c_uchar = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_ether_hostton(name: *const c_char) -> *mut c_uchar = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_fopen_offline(file: *mut File, errbuf: *mut c_char) -> *mut Pcap = no_library(errbuf);
    /// As in libpcap.
    fn pcap_fopen_offline_with_tstamp_precision(
        file: *mut File, precision: c_uint, errbuf: *mut c_char
    ) -> *mut Pcap = no_library(errbuf);
    /// As in libpcap.
    fn pcap_free_datalinks(list: *mut c_int) -> () = ();
    /// As in libpcap.
    fn pcap_free_tstamp_types(list: *mut c_int) -> () = ();
    /// As in libpcap.
    fn pcap_freealldevs(list: *mut crate::c::Device) -> () = ();
    /// As in libpcap.
    fn pcap_freecode(program: *mut Program) -> () = ();
    /// As in libpcap.
    fn pcap_init(options: c_uint, errbuf: *mut c_char) -> c_int = { no_library(errbuf); ERROR };
    /// As in libpcap.
    fn pcap_lib_version() -> *const c_char = pcap_version.as_ptr().cast();
    /// As in libpcap.
    fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char = no_library(errbuf).cast();
    /// As in libpcap.
    fn pcap_nametoaddr(name: *const c_char) -> *mut *mut c_uint = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_nametoaddrinfo(name: *const c_char) -> *mut addrinfo = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_nametoeproto(name: *const c_char) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_nametollc(name: *const c_char) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_nametonetaddr(name: *const c_char) -> c_uint = 0;
    /// As in libpcap.
    fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int = 0;
    /// As in libpcap.
    fn pcap_nametoportrange(
        name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int
    ) -> c_int = 0;
    /// As in libpcap.
    fn pcap_nametoproto(name: *const c_char) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_next_etherent(file: *mut File) -> *mut c_void = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_offline_filter(
        program: *const Program, header: *const Header, packet: *const c_uchar
    ) -> c_int = 0;
    /// As in libpcap.
    fn pcap_open_dead(link: c_int, snaplen: c_int) -> *mut Pcap = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_open_dead_with_tstamp_precision(
        link: c_int, snaplen: c_int, precision: c_uint
    ) -> *mut Pcap = std::ptr::null_mut();
    /// As in libpcap.
    fn pcap_open_offline(
        name: *const c_char, errbuf: *mut c_char
    ) -> *mut Pcap = no_library(errbuf);
    /// As in libpcap.
    fn pcap_open_offline_with_tstamp_precision(
        name: *const c_char, precision: c_uint, errbuf: *mut c_char
    ) -> *mut Pcap = no_library(errbuf);
    /// As in libpcap.
    fn pcap_statustostr(status: c_int) -> *const c_char = c"an error of libpcap".as_ptr();
    /// As in libpcap.
    fn pcap_strerror(error: c_int) -> *mut c_char = c"an error of the system".as_ptr().cast_mut();
    /// As in libpcap.
    fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int = ERROR;
    /// As in libpcap.
    fn pcap_tstamp_type_val_to_description(kind: c_int) -> *const c_char = std::ptr::null();
    /// As in libpcap.
    fn pcap_tstamp_type_val_to_name(kind: c_int) -> *const c_char = std::ptr::null();
}

with_twin! {
    fn pcap_bufsize(pcap: *mut Pcap) -> c_int = ERROR;
    fn pcap_datalink(pcap: *mut Pcap) -> c_int = slots::not_activated(pcap);
    fn pcap_datalink_ext(pcap: *mut Pcap) -> c_int = slots::not_activated(pcap);
    fn pcap_dump_fopen(pcap: *mut Pcap, file: *mut File) -> *mut Dumper = slots::no_file(pcap);
    fn pcap_dump_open(pcap: *mut Pcap, name: *const c_char) -> *mut Dumper = slots::no_file(pcap);
    fn pcap_dump_open_append(
        pcap: *mut Pcap, name: *const c_char
    ) -> *mut Dumper = slots::no_file(pcap);
    fn pcap_file(pcap: *mut Pcap) -> *mut File = std::ptr::null_mut();
    fn pcap_is_swapped(pcap: *mut Pcap) -> c_int = slots::not_activated(pcap);
    fn pcap_list_datalinks(
        pcap: *mut Pcap, list: *mut *mut c_int
    ) -> c_int = slots::not_activated(pcap);
    fn pcap_major_version(pcap: *mut Pcap) -> c_int = slots::not_activated(pcap);
    fn pcap_minor_version(pcap: *mut Pcap) -> c_int = slots::not_activated(pcap);
}

/// Writes the reason why there is no system's libpcap; returns NULL.
pub fn no_library(errbuf: *mut c_char) -> *mut Pcap {
    let why = crate::real::problem().unwrap_or(c"the system's libpcap does not have this function");
    slots::write_error(errbuf, &why.to_string_lossy());
    std::ptr::null_mut()
}

/// Version of this library, by which it recognises itself under another name.
#[unsafe(no_mangle)]
pub extern "C" fn fyke_pcap_version() -> *const c_char {
    concat!("fyke ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// As in libpcap, for programs of before 1999; `pcap_lib_version` has the version of the system's libpcap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "libpcap's name")]
pub static pcap_version: [u8; 14] = *b"1.10.0 (fyke)\0";

const fn protocol(name: &'static std::ffi::CStr, number: u16) -> EtherProtocol {
    EtherProtocol { name: name.as_ptr(), number }
}

/// As in libpcap; the system's libpcap itself may read this table in place of its own.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "libpcap's name")]
pub static eproto_db: [EtherProtocol; 13] = [
    protocol(c"aarp", 0x80f3),
    protocol(c"arp", 0x0806),
    protocol(c"atalk", 0x809b),
    protocol(c"decnet", 0x6003),
    protocol(c"ip", 0x0800),
    protocol(c"ip6", 0x86dd),
    protocol(c"lat", 0x6004),
    protocol(c"loopback", 0x9000),
    protocol(c"mopdl", 0x6001),
    protocol(c"moprc", 0x6002),
    protocol(c"rarp", 0x8035),
    protocol(c"sca", 0x6007),
    EtherProtocol { name: std::ptr::null(), number: 0 },
];
