//! Advice to the processor and to the kernel about memory. It changes the time of loads, never a value.

/// Size of a large page, in bytes: smaller memory gains nothing.
const LARGE: usize = 2 << 20;

/// Begins to load the cache line with the first byte of a value.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect but on caches; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Asks for large pages (2 MiB) in the memory of a vector, its spare capacity included. Nothing happens if it is
/// smaller, or where the system has none (Linux: `transparent_hugepage/enabled` is `never`).
pub fn prefer_huge_pages<T>(memory: &Vec<T>) {
    let len = memory.capacity().saturating_mul(size_of::<T>());
    if len < LARGE {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let skipped = memory.as_ptr().addr().wrapping_neg() % PAGE;
        let whole = (len - skipped) / PAGE * PAGE;
        // SAFETY: the pages are inside memory that the vector owns; the advice changes no content and no access right.
        unsafe {
            let first = memory.as_ptr().cast::<u8>().add(skipped);
            libc::madvise(first.cast_mut().cast(), whole, libc::MADV_HUGEPAGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks the kernel: `hg` is among the flags of the mapping.
    #[test]
    #[cfg(target_os = "linux")]
    fn large_memory_is_advised_and_keeps_its_values() {
        let small = vec![1_u8; 100];
        prefer_huge_pages(&small);
        let large = vec![7_u64; (8 << 20) / 8];
        prefer_huge_pages(&large);
        prefetch(&large[5]);
        assert!(large.iter().all(|one| *one == 7) && small == [1; 100]);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let within = large.as_ptr().addr() + (4 << 20);
        let is_range = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let parse = |text| usize::from_str_radix(text, 16).ok();
            let range = range.and_then(|(first, end)| Some(parse(first)?..parse(end)?));
            range.is_some_and(|range| range.contains(&within))
        };
        let mut lines = maps.lines().skip_while(|line| !is_range(line));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        // A kernel without large pages does not know the advice.
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
        }
    }
}
