//! What people are told of too little room, in upstream's words.

use super::plan::Disk;

/// Not as much could be freed as was wanted.
pub fn not_enough(disk: Disk, freed: u64) -> String {
    let available = disk.available.min(disk.capacity);
    let free = available.saturating_mul(100).checked_div(disk.capacity);
    let used = 100_u64.saturating_sub(free.unwrap_or_default());
    format!(
        "Insufficient free disk space on the node's image filesystem ({used}% of {} used). Failed to free \
         sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could \
         be used by active images, logs, volumes, or other data.",
        size(disk.capacity)
    )
}

fn size(bytes: u64) -> String {
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
    fn sizes_as_people_read_them() {
        let told = [1023, 1024, 1536 << 10, 5 << 30, 1 << 40, 2048 << 40].map(size);
        let expected = [
            "1023 B",
            "1.0 KiB",
            "1.5 MiB",
            "5.0 GiB",
            "1.0 TiB",
            "2048.0 TiB",
        ];
        assert_eq!(told, expected);
        let disk = Disk {
            capacity: 10 << 30,
            available: 1 << 30,
        };
        assert!(not_enough(disk, 7).contains("(90% of 10.0 GiB used). Failed to free"));
    }
}
