//! Event messages, worded as upstream.

use super::plan::ImageFsUsage;

/// The message of `FreeDiskSpaceFailed`.
pub fn free_disk_space_failed(usage: ImageFsUsage, freed: u64) -> String {
    let available = usage.available.min(usage.capacity);
    let free = available.saturating_mul(100).checked_div(usage.capacity);
    let used = 100_u64.saturating_sub(free.unwrap_or_default());
    format!(
        "Insufficient free disk space on the node's image filesystem ({used}% of {} used). Failed to free \
         sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could \
         be used by active images, logs, volumes, or other data.",
        format_size(usage.capacity)
    )
}

fn format_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    if size < 1024.0 {
        return format!("{bytes} B");
    }
    let mut unit = "KiB";
    size /= 1024.0;
    for larger in ["MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_binary_unit() {
        let sizes = [1023, 1024, 1536 << 10, 5 << 30, 1 << 40, 2048 << 40].map(format_size);
        let expected = [
            "1023 B",
            "1.0 KiB",
            "1.5 MiB",
            "5.0 GiB",
            "1.0 TiB",
            "2048.0 TiB",
        ];
        assert_eq!(sizes, expected);
        let usage = ImageFsUsage {
            capacity: 10 << 30,
            available: 1 << 30,
        };
        let message = free_disk_space_failed(usage, 7);
        assert!(message.contains("(90% of 10.0 GiB used). Failed to free"));
    }
}
