//! Local time: as text by strftime(3), and its offset from UTC. The monotonic clock, and the
//! processor time of a thread.

/// Fills in a pattern; `None` if the result is empty or longer than a file name can be.
pub(crate) fn format_local(pattern: &[u8], seconds: u64) -> Option<Vec<u8>> {
    const LIMIT: usize = libc::PATH_MAX as usize;
    let pattern = std::ffi::CString::new(pattern).ok()?;
    let seconds = libc::time_t::try_from(seconds).ok()?;
    // SAFETY: all zeros is a valid tm (its zone pointer may be null).
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid; the re-entrant form keeps no state.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut broken_down) };
    if filled.is_null() {
        return None;
    }
    let mut text = vec![0; LIMIT];
    let out = text.as_mut_ptr().cast();
    // SAFETY: at most LIMIT bytes are written to `text`; the pattern ends with zero; the tm was filled in above.
    let len = unsafe { libc::strftime(out, LIMIT, pattern.as_ptr(), &raw const broken_down) };
    text.truncate(len);
    (len > 0).then_some(text)
}

/// Offset from UTC to local time at that moment, in seconds; 0 if the system does not know it.
pub(crate) fn local_offset_s(seconds: i64) -> i32 {
    // SAFETY: all zeros is a valid tm (its zone pointer may be null).
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid; the re-entrant form keeps no state.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut broken_down) };
    if filled.is_null() { 0 } else { i32::try_from(broken_down.tm_gmtoff).unwrap_or(0) }
}

/// The time of the monotonic clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Processor time that the calling thread has used; on a busy machine it grows more slowly than time. Cost: a system
/// call.
pub fn processor_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    std::time::Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
