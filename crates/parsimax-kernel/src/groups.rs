//! Jacobians of mappings with groups: `Jv = (mean_G v − mean_S v)/γ` on every group `G` of the support `S`.
//!
//! The row of probabilities tells the groups: equal values, of neighbours or anywhere. Two groups whose values
//! round to the same float are within an ulp of being one, where the Jacobian jumps and is by convention that
//! of the coarser groups.
//!
//! A support of more than `ROOM` entries is not listed: the row is walked instead, once for the mean of the support and
//! once for the groups; where equal values stand anywhere, as often as it takes with a table of `KINDS` groups.

use super::fused::{put, stretches};
use super::scan::collect_few;
use super::structured::Work;
use super::vector::{Vector, outlined};

outlined! {
    /// Lists the support of a row of probabilities; `None` if that may be more than [`ROOM`].
    ///
    /// # Safety
    /// `p` is readable for `d` floats; `list` and `index` are writable for `d`, or [`ROOM`] if that is less, and
    /// `2·LANES` more; the CPU has the instruction set of `V`.
    unsafe fn support<V>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> Option<usize> => support_any
}

/// # Safety
/// As [`support`].
#[inline(always)]
unsafe fn support_any<V: Vector>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> Option<usize> {
    // SAFETY: as the caller vouches.
    unsafe { collect_few::<V>(p, d, 0.0, ROOM, list, index) }
}

/// `Σ (v − origin)` over places; four sums, so that one addition need not wait for the last.
fn sum(v: &[f32], place: &[u32], origin: f64) -> f64 {
    let mut lanes = [0.0; 4];
    let quads = place.chunks_exact(4);
    let rest: f64 = quads.remainder().iter().map(|i| f64::from(v[*i as usize]) - origin).sum();
    for quad in quads {
        for (lane, i) in lanes.iter_mut().zip(quad) {
            *lane += f64::from(v[*i as usize]) - origin;
        }
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]) + rest
}

/// Entries of a support that are listed at most, 256 KiB with their positions.
const ROOM: usize = 32_768;

/// Lists the support of a row in the working memory; `false` if it may be too large.
///
/// # Safety
/// The CPU has the instruction set of `V`.
unsafe fn list<V: Vector>(p: &[f32], work: &mut Work) -> bool {
    let (list, index) = work.lists(p.len().min(ROOM));
    // SAFETY: the lists hold a row or `ROOM` entries, and two vectors; the caller vouches for the instruction set; that
    // is how many were written.
    unsafe { support::<V>(p.as_ptr(), p.len(), list, index).map(|n| work.hold(n)).is_some() }
}

/// One row of a mapping that groups neighbours. Masked entries, −∞ in `z`, are none. Without `z` it is `out` that holds
/// −∞ in their places.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn neighbours<V: Vector>(
    z: Option<&[f32]>,
    (p, v): (&[f32], &[f32]),
    out: &mut [f32],
    gamma: f64,
    work: &mut Work,
) {
    // SAFETY: the caller vouches for the instruction set.
    let listed = z.filter(|_| unsafe { list::<V>(p, work) });
    let Some(z) = listed else {
        if let Some(z) = z {
            out.copy_from_slice(z);
        }
        return walk((p, v), out, gamma);
    };
    out.fill(0.0);
    let (list, index) = (&work.list, &work.index);
    let Some(first) = index.first() else { return };
    // A constant in v, which the derivative does not feel, takes no digits from the rest.
    let origin = f64::from(v[*first as usize]);
    let all = sum(v, index, origin) / index.len() as f64;
    stretches(z, index, |range, _| {
        let mut start = range.start;
        while start < range.end {
            let len = list[start..range.end].iter().take_while(|p| **p == list[start]).count();
            let group = &index[start..start + len];
            put(out, group, ((sum(v, group, origin) / len as f64 - all) / gamma) as f32);
            start += len;
        }
    });
}

/// The mean of `v` over the support of a row, as some entry of it and a difference.
fn mean((p, v): (&[f32], &[f32])) -> Option<(f64, f64)> {
    let origin = f64::from(v[p.iter().position(|p| *p > 0.0)?]);
    let (mut sums, mut counts) = ([0.0; 4], [0usize; 4]);
    for (p, v) in p.chunks(4).zip(v.chunks(4)) {
        for (k, (p, v)) in p.iter().zip(v).enumerate() {
            sums[k] += if *p > 0.0 { f64::from(*v) - origin } else { 0.0 };
            counts[k] += usize::from(*p > 0.0);
        }
    }
    Some((origin, sums.iter().sum::<f64>() / counts.iter().sum::<usize>() as f64))
}

/// Neighbours that form a group so far: the first, their probability, what they bring and how many they are.
struct Open {
    start: usize,
    p: f32,
    sum: f64,
    len: usize,
}

/// [`neighbours`] without a list; `out` holds −∞ in the places of masked entries.
fn walk((p, v): (&[f32], &[f32]), out: &mut [f32], gamma: f64) {
    let Some((origin, all)) = mean((p, v)) else { return out.fill(0.0) };
    let mut open: Option<Open> = None;
    let close = |open: Option<Open>, end: usize, out: &mut [f32]| {
        let Some(Open { start, sum, len, .. }) = open else { return };
        let value = ((sum / len as f64 - all) / gamma) as f32;
        for (out, p) in out[start..end].iter_mut().zip(&p[start..end]) {
            *out = if *p > 0.0 { value } else { 0.0 };
        }
    };
    for i in 0..p.len() {
        let (is_masked, brings) = (out[i] == f32::NEG_INFINITY, f64::from(v[i]) - origin);
        match &mut open {
            Some(group) if p[i] > 0.0 && p[i] == group.p => {
                group.sum += brings;
                group.len += 1;
            }
            _ if p[i] > 0.0 => {
                close(open.take(), i, out);
                open = Some(Open { start: i, p: p[i], sum: brings, len: 1 });
            }
            _ if is_masked => {}
            _ => close(open.take(), i, out),
        }
        if p[i] <= 0.0 {
            out[i] = 0.0;
        }
    }
    close(open, p.len(), out);
}

/// Groups of equal floats, in the order of their first member.
///
/// An open table from bits to groups, half empty. What a table cannot promise for every set of keys, few
/// probes, is counted, and a row that needs many is sorted instead: O(n log n) at worst.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The number of a group plus one, or 0.
    slots: Vec<u32>,
    groups: Vec<Group>,
    /// The group of every entry.
    member: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    bits: u32,
    len: u32,
    /// Of what the members bring, then what each of them gets.
    value: f64,
}

impl Table {
    /// No groups yet.
    fn start(&mut self) {
        self.slots.clear();
        self.slots.resize(64, 0);
        self.groups.clear();
    }

    /// Groups the values, adding up what each brings.
    fn group(&mut self, values: &[f32], brings: impl Fn(usize) -> f64) {
        self.start();
        self.member.clear();
        let (mut last, mut probes) = (u32::MAX, 0);
        for (k, value) in values.iter().enumerate() {
            let bits = value.to_bits();
            if last == u32::MAX || self.groups[last as usize].bits != bits {
                last = self.find(bits, &mut probes);
                if probes > 8 * values.len() + 1024 {
                    return self.group_sorted(values, brings);
                }
            }
            self.groups[last as usize].len += 1;
            self.groups[last as usize].value += brings(k);
            self.member.push(last);
        }
    }

    /// The group of these bits, a new one if there is none.
    fn find(&mut self, bits: u32, probes: &mut usize) -> u32 {
        if 2 * self.groups.len() >= self.slots.len() {
            self.rebuild(4 * self.slots.len(), probes);
        }
        let mut slot = home(bits, self.slots.len());
        while self.slots[slot] != 0 {
            let group = self.slots[slot] - 1;
            if self.groups[group as usize].bits == bits {
                return group;
            }
            slot = (slot + 1) % self.slots.len();
            *probes += 1;
        }
        self.groups.push(Group { bits, len: 0, value: 0.0 });
        self.slots[slot] = self.groups.len() as u32;
        self.groups.len() as u32 - 1
    }

    /// Puts the groups into so many slots.
    fn rebuild(&mut self, size: usize, probes: &mut usize) {
        self.slots.clear();
        self.slots.resize(size, 0);
        for (g, group) in self.groups.iter().enumerate() {
            let mut slot = home(group.bits, size);
            while self.slots[slot] != 0 {
                slot = (slot + 1) % size;
                *probes += 1;
            }
            self.slots[slot] = g as u32 + 1;
        }
    }

    fn group_sorted(&mut self, values: &[f32], brings: impl Fn(usize) -> f64) {
        let mut order: Vec<u64> = values.iter().zip(0u64..).map(|(p, k)| u64::from(p.to_bits()) << 32 | k).collect();
        order.sort_unstable();
        self.groups.clear();
        self.member.clear();
        self.member.resize(values.len(), 0);
        for key in order {
            let (bits, k) = ((key >> 32) as u32, key as u32 as usize);
            if self.groups.last().is_none_or(|group| group.bits != bits) {
                self.groups.push(Group { bits, len: 0, value: 0.0 });
            }
            let g = self.groups.len() - 1;
            self.groups[g].len += 1;
            self.groups[g].value += brings(k);
            self.member[k] = g as u32;
        }
    }
}

/// The first slot to look at, in a table whose size is a power of two.
fn home(bits: u32, size: usize) -> usize {
    // Multiplication by the golden ratio; the high bits are the mixed ones.
    (bits.wrapping_mul(0x9E37_79B1) >> (32 - size.trailing_zeros())) as usize
}

/// One row of a mapping that groups entries wherever they stand.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn anywhere<V: Vector>((p, v): (&[f32], &[f32]), out: &mut [f32], gamma: f64, work: &mut Work) {
    // SAFETY: the caller vouches for the instruction set.
    if !unsafe { list::<V>(p, work) } {
        return work.table.walk((p, v), out, gamma, KINDS);
    }
    out.fill(0.0);
    let (list, index, table) = (&work.list, &work.index, &mut work.table);
    let Some(first) = index.first() else { return };
    let origin = f64::from(v[*first as usize]);
    table.group(list, |k| f64::from(v[index[k] as usize]) - origin);
    let all = table.groups.iter().map(|group| group.value).sum::<f64>() / index.len() as f64;
    for group in &mut table.groups {
        group.value = (group.value / f64::from(group.len) - all) / gamma;
    }
    for (i, member) in index.iter().zip(&table.member) {
        out[*i as usize] = table.groups[*member as usize].value as f32;
    }
}

/// Groups of a table that is made without a list of the support: half a megabyte.
const KINDS: usize = 16_384;

impl Table {
    /// [`anywhere`] without a list: groups of so many probabilities at a time, from the largest down.
    fn walk(&mut self, (p, v): (&[f32], &[f32]), out: &mut [f32], gamma: f64, kinds: usize) {
        out.fill(0.0);
        let Some((origin, all)) = mean((p, v)) else { return };
        let brings = |v: f32| f64::from(v) - origin;
        // Bits of positive floats are in the order of these.
        let mut above = u32::MAX;
        while above > 0 {
            let least = self.largest((p, v), above, kinds, brings);
            for group in &mut self.groups {
                group.value = (group.value / f64::from(group.len) - all) / gamma;
            }
            let (mut last, mut probes) = (0, 0);
            for (out, p) in out.iter_mut().zip(p).filter(|(_, p)| is_among(**p, least, above)) {
                if self.groups[last].bits != p.to_bits() {
                    last = self.find(p.to_bits(), &mut probes) as usize;
                }
                *out = self.groups[last].value as f32;
            }
            above = least;
        }
    }

    /// Groups the largest of the probabilities below some bits, no more kinds than that; returns from which bits on all
    /// are there, 0 if there are no more.
    fn largest(&mut self, (p, v): (&[f32], &[f32]), above: u32, kinds: usize, brings: impl Fn(f32) -> f64) -> u32 {
        self.start();
        let (mut least, mut last, mut probes) = (0, usize::MAX, 0);
        for (p, v) in p.iter().zip(v) {
            if !is_among(*p, least, above) {
                continue;
            }
            if last == usize::MAX || self.groups[last].bits != p.to_bits() {
                last = self.find(p.to_bits(), &mut probes) as usize;
            }
            self.groups[last].len += 1;
            self.groups[last].value += brings(*v);
            if self.groups.len() > kinds {
                least = self.halve();
                last = usize::MAX;
            }
        }
        least
    }

    /// Forgets the smaller half of the groups; the bits of the smallest that is left.
    fn halve(&mut self) -> u32 {
        let middle = self.groups.len() / 2;
        self.groups.select_nth_unstable_by_key(middle, |group| u32::MAX - group.bits);
        self.groups.truncate(middle + 1);
        self.rebuild(self.slots.len(), &mut 0);
        self.groups[middle].bits
    }
}

/// Whether a probability is in a range of bits.
fn is_among(p: f32, least: u32, above: u32) -> bool {
    p > 0.0 && (least..above).contains(&p.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::Portable;

    #[test]
    fn tables_and_sorting_find_the_same_groups() {
        let mut rng = fastrand::Rng::with_seed(61);
        for kinds in [1, 3, 100, 5000] {
            let values: Vec<f32> = (0..4000).map(|_| 1.0 / (1.0 + rng.usize(0..kinds) as f32)).collect();
            let (mut a, mut b) = (Table::default(), Table::default());
            a.group(&values, |k| k as f64);
            b.group_sorted(&values, |k| k as f64);
            assert_eq!(a.groups.len(), b.groups.len());
            for (k, value) in values.iter().enumerate() {
                let (a, b) = (a.groups[a.member[k] as usize], b.groups[b.member[k] as usize]);
                assert_eq!((a.bits, a.len, a.value), (value.to_bits(), b.len, b.value));
            }
        }
    }

    /// A row of probabilities of so many kinds, some of them 0, and a gradient.
    fn row(rng: &mut fastrand::Rng, d: usize, kinds: usize) -> (Vec<f32>, Vec<f32>) {
        let p = (0..d).map(|_| if rng.u8(..4) == 0 { 0.0 } else { 1.0 / (1.0 + rng.usize(0..kinds) as f32) });
        (p.collect(), (0..d).map(|_| rng.f32() - 0.5).collect())
    }

    #[test]
    fn groups_anywhere_are_the_same_with_and_without_a_list() {
        let mut rng = fastrand::Rng::with_seed(62);
        for kinds in [1, 3, 100, 5000] {
            let (p, v) = row(&mut rng, 4000, kinds);
            let (mut want, mut out) = (vec![0.0; 4000], vec![0.0; 4000]);
            // SAFETY: every CPU has the portable instance.
            unsafe { anywhere::<Portable>((&p, &v), &mut want, 0.7, &mut Work::default()) };
            for room in [7, 64, 5000] {
                Table::default().walk((&p, &v), &mut out, 0.7, room);
                for (out, want) in out.iter().zip(&want) {
                    assert!((out - want).abs() < 1e-6, "{kinds} {room}: {out} {want}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_the_same_with_and_without_a_list() {
        let mut rng = fastrand::Rng::with_seed(63);
        for kinds in [1, 2, 100] {
            for mask in [0, 2, 8] {
                let (mut p, v) = row(&mut rng, 2000, kinds);
                let mut z = vec![0.0; 2000];
                for (z, p) in z.iter_mut().zip(&mut p).filter(|_| rng.u8(..10) < mask) {
                    (*z, *p) = (f32::NEG_INFINITY, 0.0);
                }
                let (mut want, mut out) = (vec![0.0; 2000], z.clone());
                // SAFETY: every CPU has the portable instance.
                unsafe { neighbours::<Portable>(Some(&z), (&p, &v), &mut want, 0.7, &mut Work::default()) };
                walk((&p, &v), &mut out, 0.7);
                for (out, want) in out.iter().zip(&want) {
                    assert!((out - want).abs() < 1e-6, "{kinds} {mask}: {out} {want}");
                }
            }
        }
    }
}
