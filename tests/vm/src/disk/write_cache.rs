use std::collections::BTreeMap;

use super::SECTOR;

type Sector = [u8; SECTOR];

/// The volatile cache of a disk: all versions of each sector since the last flush, oldest first.
#[derive(Debug, Default)]
pub struct WriteCache {
    unflushed: BTreeMap<u64, Vec<Sector>>,
    sectors: usize,
}

/// What a power cut did to the unflushed sectors.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CacheLoss {
    /// Sectors with unflushed content.
    pub unflushed: usize,
    /// Of these, the ones that keep the content of the last flush.
    pub lost: usize,
    /// Of these, the ones with content that was overwritten in the cache.
    pub outdated: usize,
}

/// How much of the cache reaches the disk when the power is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Survival {
    /// Nothing: the drive loses its whole cache.
    None,
    /// Each sector with this probability, in a random version of it.
    Some(f64),
    /// Everything, as of a drive that finishes its writes.
    All,
}

impl Survival {
    /// A random one; the extremes are cases of their own.
    pub fn choose(random: &mut fastrand::Rng) -> Self {
        match random.u8(..8) {
            0 | 1 => Self::None,
            2 => Self::All,
            _ => Self::Some(random.f64()),
        }
    }
}

/// Consecutive sectors to write to the backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Number of the first sector.
    pub first: u64,
    /// Content of the sectors.
    pub data: Vec<u8>,
}

impl WriteCache {
    /// Caches a write. `data` is a whole number of sectors.
    pub fn write(&mut self, first: u64, data: &[u8]) {
        let (sectors, _) = data.as_chunks::<SECTOR>();
        for (number, sector) in (first..).zip(sectors) {
            self.unflushed.entry(number).or_default().push(*sector);
            self.sectors += 1;
        }
    }

    /// Replaces sectors read from the backing file by their newest cached version.
    pub fn overlay(&self, first: u64, data: &mut [u8]) {
        let (sectors, _) = data.as_chunks_mut::<SECTOR>();
        let end = first.saturating_add(sectors.len() as u64);
        for (number, versions) in self.unflushed.range(first..end) {
            let index = usize::try_from(number - first).unwrap_or(usize::MAX);
            if let (Some(sector), Some(newest)) = (sectors.get_mut(index), versions.last()) {
                *sector = *newest;
            }
        }
    }

    /// Cached bytes, all versions.
    pub fn size(&self) -> usize {
        self.sectors * SECTOR
    }

    /// Empties the cache: the newest version of each sector becomes durable.
    pub fn flush(&mut self) -> Vec<Extent> {
        self.sectors = 0;
        let all = std::mem::take(&mut self.unflushed);
        extents(
            all.into_iter()
                .filter_map(|(number, versions)| Some((number, *versions.last()?))),
        )
    }

    /// Empties the cache as a power cut does: returns what reaches the disk all the same, since a
    /// drive writes its cache at any time and in any order.
    pub fn cut_power(
        &mut self,
        survival: Survival,
        random: &mut fastrand::Rng,
    ) -> (Vec<Extent>, CacheLoss) {
        self.sectors = 0;
        let all = std::mem::take(&mut self.unflushed);
        let mut loss = CacheLoss {
            unflushed: all.len(),
            ..CacheLoss::default()
        };
        let mut surviving = Vec::new();
        for (number, versions) in all {
            let newest = versions.len().saturating_sub(1);
            let chosen = match survival {
                Survival::None => None,
                Survival::All => Some(newest),
                Survival::Some(share) => (random.f64() < share).then(|| random.usize(..=newest)),
            };
            match chosen.and_then(|version| versions.get(version).map(|data| (version, data))) {
                None => loss.lost += 1,
                Some((version, data)) => {
                    loss.outdated += usize::from(version < newest);
                    surviving.push((number, *data));
                }
            }
        }
        (extents(surviving.into_iter()), loss)
    }
}

/// Joins consecutive sectors; they come in ascending order.
fn extents(sectors: impl Iterator<Item = (u64, Sector)>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (number, sector) in sectors {
        match extents.last_mut() {
            Some(last) if last.first + (last.data.len() / SECTOR) as u64 == number => {
                last.data.extend_from_slice(&sector);
            }
            _ => extents.push(Extent {
                first: number,
                data: sector.to_vec(),
            }),
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 8;

    /// A disk of eight sectors with a cache. Each sector holds one byte repeated.
    struct SmallDisk {
        cache: WriteCache,
        durable: Vec<u8>,
        /// Versions of each sector since the last flush, the durable one first.
        possible: Vec<Vec<u8>>,
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        Flush,
    }

    impl SmallDisk {
        fn new() -> Self {
            let sectors = usize::try_from(SIZE).expect("a small number");
            Self {
                cache: WriteCache::default(),
                durable: vec![0; sectors * SECTOR],
                possible: vec![vec![0]; sectors],
            }
        }

        fn apply(&mut self, extents: &[Extent]) {
            for extent in extents {
                let at = usize::try_from(extent.first).expect("a small number") * SECTOR;
                self.durable[at..at + extent.data.len()].copy_from_slice(&extent.data);
            }
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Write(first, values) => {
                    let data: Vec<u8> = values.iter().flat_map(|v| [*v; SECTOR]).collect();
                    self.cache.write(*first, &data);
                    for (number, value) in (*first..).zip(values) {
                        let index = usize::try_from(number).expect("a small number");
                        self.possible[index].push(*value);
                    }
                }
                Step::Flush => {
                    let extents = self.cache.flush();
                    self.apply(&extents);
                    for versions in &mut self.possible {
                        *versions = versions.last().copied().into_iter().collect();
                    }
                }
            }
        }

        fn read(&self) -> Vec<u8> {
            let mut data = self.durable.clone();
            self.cache.overlay(0, &mut data);
            data
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..SIZE, prop::collection::vec(1_u8.., 1..5)).prop_map(|(first, values)| {
            let space = usize::try_from(SIZE - first).expect("a small number");
            Step::Write(first, values.into_iter().take(space).collect())
        });
        prop::collection::vec(prop_oneof![4 => write, 1 => Just(Step::Flush)], 0..30)
    }

    fn content(data: &[u8]) -> Vec<u8> {
        let sectors = data.chunks(SECTOR);
        sectors
            .map(|sector| {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "a torn sector"
                );
                sector[0]
            })
            .collect()
    }

    proptest! {
        #[test]
        fn reads_see_the_newest_writes(steps in steps()) {
            let mut disk = SmallDisk::new();
            for step in &steps {
                disk.step(step);
                let newest: Vec<u8> = disk.possible.iter().map(|v| *v.last().expect("one")).collect();
                prop_assert_eq!(content(&disk.read()), newest);
            }
        }

        #[test]
        fn a_power_cut_keeps_flushed_sectors_and_one_version_of_the_others(
            steps in steps(), seed: u64, share in 0.0..=1.0_f64, kind in 0_u8..3,
        ) {
            let mut disk = SmallDisk::new();
            for step in &steps {
                disk.step(step);
            }
            let survival = [Survival::None, Survival::Some(share), Survival::All][usize::from(kind)];
            let (extents, loss) = disk.cache.cut_power(survival, &mut fastrand::Rng::with_seed(seed));
            disk.apply(&extents);
            prop_assert_eq!(disk.cache.size(), 0);
            let after = content(&disk.durable);
            for (value, versions) in after.iter().zip(&disk.possible) {
                prop_assert!(versions.contains(value));
                match survival {
                    Survival::None => prop_assert_eq!(value, &versions[0]),
                    Survival::All => prop_assert_eq!(Some(value), versions.last()),
                    Survival::Some(_) => {}
                }
            }
            prop_assert!(loss.lost + loss.outdated <= loss.unflushed);
        }
    }

    #[test]
    fn consecutive_sectors_are_one_extent() {
        let mut cache = WriteCache::default();
        cache.write(3, &[1; SECTOR]);
        cache.write(7, &[2; SECTOR]);
        cache.write(4, &[3; 2 * SECTOR]);
        assert_eq!(cache.size(), 4 * SECTOR);
        let extents = cache.flush();
        let shape: Vec<_> = extents.iter().map(|e| (e.first, e.data.len())).collect();
        assert_eq!(shape, [(3, 3 * SECTOR), (7, SECTOR)]);
    }
}
