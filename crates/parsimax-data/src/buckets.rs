//! Batches of examples of like length.

use fastrand::Rng;

/// Indices of the examples, batch by batch: each exactly once, those of a batch alike in length, batches and
/// members shuffled. The same seed gives the same batches, so that a run can be taken up at any epoch.
///
/// Examples are shuffled, cut into pools of `32 · size`, sorted by length within their pool and cut into batches:
/// little is padded, and an example meets others in each epoch.
///
/// # Panics
/// If `size` is 0.
#[must_use]
pub fn batches(lengths: &[usize], size: usize, seed: u64) -> Vec<Vec<usize>> {
    const POOL: usize = 32;
    let mut random = Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    random.shuffle(&mut order);
    let mut batches = Vec::with_capacity(lengths.len().div_ceil(size));
    for pool in order.chunks_mut(POOL * size) {
        pool.sort_by_key(|i| lengths[*i]);
        batches.extend(pool.chunks(size).map(<[usize]>::to_vec));
    }
    random.shuffle(&mut batches);
    batches
}

/// The seed of an epoch of a run.
#[must_use]
pub fn epoch_seed(seed: u64, epoch: u64) -> u64 {
    // One step of SplitMix64: near seeds and epochs give far streams.
    let mut x = seed.wrapping_add(epoch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(n: usize) -> Vec<usize> {
        let mut random = Rng::with_seed(7);
        (0..n).map(|_| random.usize(1..30)).collect()
    }

    #[test]
    fn every_example_comes_exactly_once() {
        for n in [0, 1, 63, 64, 65, 5000] {
            let batches = batches(&lengths(n), 64, 3);
            let mut all: Vec<usize> = batches.concat();
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
            assert!(batches.iter().all(|b| (1..=64).contains(&b.len())));
        }
    }

    #[test]
    fn little_is_padded() {
        let lengths = lengths(5000);
        let padded: usize =
            (batches(&lengths, 64, 3).iter()).map(|b| b.len() * b.iter().map(|i| lengths[*i]).max().unwrap_or(0)).sum();
        let real: usize = lengths.iter().sum();
        // Without sorting, every batch would be about as long as the longest example: 2 times the mean.
        assert!((padded as f64) < 1.1 * real as f64, "{padded} of {real}");
    }

    #[test]
    fn a_seed_gives_its_batches_and_an_epoch_its_seed() {
        let lengths = lengths(300);
        let of = |epoch| batches(&lengths, 16, epoch_seed(1, epoch));
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        assert_ne!(epoch_seed(1, 2), epoch_seed(2, 1));
    }
}
