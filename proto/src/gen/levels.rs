// This file is @generated from proto/baseline.txt.
/// Level of `polylet.device.v1`.
pub const DEVICE: u32 = 18;
/// Level of `polylet.eviction.v1`.
pub const EVICTION: u32 = 3;
/// Level of `polylet.imagegc.v1`.
pub const IMAGEGC: u32 = 3;
/// Level of `polylet.lifecycle.v1`.
pub const LIFECYCLE: u32 = 14;
/// Level of `polylet.notice.v1`.
pub const NOTICE: u32 = 3;
/// Level of `polylet.pleg.v1`.
pub const PLEG: u32 = 11;
/// Level of `polylet.podconfig.v1`.
pub const PODCONFIG: u32 = 17;
/// Level of `polylet.prober.v1`.
pub const PROBER: u32 = 2;
/// Level of `polylet.stats.v1`.
pub const STATS: u32 = 6;
/// Level of `polylet.status.v1`.
pub const STATUS: u32 = 3;
/// Level of `polylet.supervisor.v1`.
pub const SUPERVISOR: u32 = 14;
/// Level of `polylet.sync.v1`.
pub const SYNC: u32 = 19;
/// Level of `polylet.volume.v1`.
pub const VOLUME: u32 = 2;
