//! Jacobians of mappings with groups: `Jv = (mean_G v − mean_S v)/γ` on every group `G` of the support `S`.
//!
//! The row of probabilities tells the groups: equal values, of neighbours or anywhere. Two groups whose values
//! round to the same float are within an ulp of being one, where the Jacobian jumps and is by convention that
//! of the coarser groups.

use super::fused::{put, stretches};
use super::scan::collect_indexed;
use super::structured::Work;
use super::vector::{Vector, outlined};

outlined! {
    /// Lists the support of a row of probabilities.
    ///
    /// # Safety
    /// `p` is readable for `d` floats; `list` and `index` are writable for `d + 2·LANES`; the CPU has the
    /// instruction set of `V`.
    unsafe fn support<V>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize => support_any
}

/// # Safety
/// As [`support`].
#[inline(always)]
unsafe fn support_any<V: Vector>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { collect_indexed::<V>(p, d, 0.0, 0, list, index) }
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

/// One row of a mapping that groups neighbours. Masked entries, −∞ in `z`, are none.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn neighbours<V: Vector>(
    z: &[f32],
    (p, v): (&[f32], &[f32]),
    out: &mut [f32],
    gamma: f64,
    work: &mut Work,
) {
    let (list, index) = work.lists(p.len());
    // SAFETY: the lists hold a row and two vectors; the caller vouches for the instruction set.
    let n = unsafe { support::<V>(p.as_ptr(), p.len(), list, index) };
    // SAFETY: that is how many were written.
    unsafe { work.hold(n) };
    out.fill(0.0);
    let (list, index) = (&work.list, &work.index);
    let Some(first) = index.first() else { return };
    // A constant in v, which the derivative does not feel, takes no digits from the rest.
    let origin = f64::from(v[*first as usize]);
    let all = sum(v, index, origin) / n as f64;
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
    /// Groups the values, adding up what each brings.
    fn group(&mut self, values: &[f32], brings: impl Fn(usize) -> f64) {
        self.slots.clear();
        self.slots.resize(64, 0);
        self.groups.clear();
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
            let size = 4 * self.slots.len();
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
    let (list, index) = work.lists(p.len());
    // SAFETY: the lists hold a row and two vectors; the caller vouches for the instruction set.
    let n = unsafe { support::<V>(p.as_ptr(), p.len(), list, index) };
    // SAFETY: that is how many were written.
    unsafe { work.hold(n) };
    out.fill(0.0);
    let (list, index, table) = (&work.list, &work.index, &mut work.table);
    let Some(first) = index.first() else { return };
    let origin = f64::from(v[*first as usize]);
    table.group(list, |k| f64::from(v[index[k] as usize]) - origin);
    let all = table.groups.iter().map(|group| group.value).sum::<f64>() / n as f64;
    for group in &mut table.groups {
        group.value = (group.value / f64::from(group.len) - all) / gamma;
    }
    for (i, member) in index.iter().zip(&table.member) {
        out[*i as usize] = table.groups[*member as usize].value as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
