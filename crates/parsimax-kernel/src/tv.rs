//! The proximal operator of one-dimensional total variation on a stretch of scores, as pieces of equal value.
//!
//! `argmin_x ½‖x − y‖² + λ Σ |x_{i+1} − x_i|`, where an end of the stretch is free or has a neighbour that is
//! known to stay below: that neighbour pulls the end down by λ, and nothing else of it matters.
//!
//! **Algorithm.** The direct method (Condat 2013): from the last bend of the string on, keep the smallest and
//! the largest slope that stay in the tube, which are the largest of the slopes to its lower and the smallest of
//! those to its upper wall. A score that neither can follow makes a bend where the violated one last touched
//! the wall. There is nothing to mispredict inside a piece.
//!
//! **Cost.** After a bend the scores behind it are read again, which is quadratic on rows made for it. So what
//! was read twice is counted, and beyond a few times the row the rest is left to the hulls of both walls,
//! which read every score once and drop every segment once: O(n) whatever the row.
//!
//! **In place.** A piece is handed out when every score of it has been read for the last time, so that its value
//! may take their place (`Scores`).
//!
//! **Memory.** None but that of the hulls, and of those no more than `KEPT` segments: what lies behind the last of them
//! is one chord, of which nothing is known but its ends. That is enough to tell which segments a new score does away
//! with: those that its chord to their end makes no corner with. Once the kept ones are spent, the scores below the
//! chord are read again. Of `n` scores a stretch that is smooth over a long way may read `n/KEPT` times as many.

use std::cell::Cell;
use std::ops::Range;

/// Equal neighbours: their value, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) value: f64,
    pub(crate) len: u32,
}

/// Spent segments that a hull keeps at least.
const SPENT: usize = 1024;

/// Segments of a hull that are kept at most, of 16 bytes each.
const KEPT: usize = 8192;

/// A segment of a hull.
#[derive(Clone, Copy, Debug)]
struct Segment {
    sum: f64,
    len: usize,
}

impl Segment {
    fn piece(self) -> Piece {
        Piece { value: self.sum / self.len as f64, len: self.len as u32 }
    }
    fn join(self, next: Segment) -> Segment {
        Segment { sum: self.sum + next.sum, len: self.len + next.len }
    }
    /// Whether the slope is above the other's.
    fn exceeds(self, other: Segment) -> bool {
        self.sum * other.len as f64 > other.sum * self.len as f64
    }
}

/// The segments of a wall's hull from the last bend on; those before `head` are spent.
#[derive(Clone, Debug, Default)]
struct Hull {
    segments: Vec<Segment>,
    head: usize,
    /// The chord of those that were not kept.
    chord: Option<Segment>,
}

impl Hull {
    fn first(&self) -> Segment {
        self.segments[self.head]
    }
    fn is_single(&self) -> bool {
        self.segments.len() - self.head == 1 && self.chord.is_none()
    }
    /// Whether what was kept is spent.
    fn is_lost(&self) -> bool {
        self.segments.len() == self.head
    }
    /// Spends the first segment. Once most are spent they make room, so that a long stretch takes no more of it than
    /// its longest piece; fewer are moved then than were spent.
    fn spend(&mut self) -> Segment {
        let first = self.first();
        self.head += 1;
        if self.head >= SPENT && 2 * self.head > self.segments.len() {
            self.segments.drain(..self.head);
            self.head = 0;
        }
        first
    }
    fn reset(&mut self) {
        self.segments.clear();
        self.head = 0;
        self.chord = None;
    }
    /// All of them as one.
    fn whole(&self) -> Segment {
        self.segments[self.head..].iter().copied().chain(self.chord).fold(Segment { sum: 0.0, len: 0 }, Segment::join)
    }
    fn push(&mut self, next: Segment, corner: impl Fn(Segment, Segment) -> bool) {
        let mut next = self.chord.map_or(next, |chord| chord.join(next));
        let mut is_chord = self.chord.is_some();
        while self.segments.len() > self.head {
            let last = self.segments[self.segments.len() - 1];
            if corner(last, next) {
                break;
            }
            self.segments.pop();
            next = last.join(next);
            // From here on to the new score nothing touches the wall: a segment, whatever lay between.
            is_chord = false;
        }
        if is_chord || self.segments.len() - self.head == KEPT {
            self.chord = Some(next);
        } else {
            self.chord = None;
            self.segments.push(next);
        }
    }
}

/// Working memory of the hulls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hulls {
    upper: Hull,
    lower: Hull,
}

/// Where the string leaves: the offsets of the lowest and the highest first slope from the first score.
#[derive(Clone, Copy)]
struct Start {
    low: f64,
    high: f64,
}

impl Start {
    fn free(lambda: f64) -> Start {
        Start { low: -lambda, high: lambda }
    }
    /// Behind a lower piece.
    fn risen(lambda: f64) -> Start {
        Start { low: -2.0 * lambda, high: 0.0 }
    }
    /// Behind a higher piece.
    fn fallen(lambda: f64) -> Start {
        Start { low: 0.0, high: 2.0 * lambda }
    }
}

/// Scores that are read, or whose places are written once they have been read.
pub(crate) trait Scores: Copy {
    fn len(self) -> usize;
    fn score(self, k: usize) -> f32;
}

impl Scores for &[f32] {
    #[inline(always)]
    fn len(self) -> usize {
        <[f32]>::len(self)
    }
    #[inline(always)]
    fn score(self, k: usize) -> f32 {
        self[k]
    }
}

impl Scores for &[Cell<f32>] {
    #[inline(always)]
    fn len(self) -> usize {
        <[Cell<f32>]>::len(self)
    }
    #[inline(always)]
    fn score(self, k: usize) -> f32 {
        self[k].get()
    }
}

/// Some of the scores that somebody hands out one by one.
pub(crate) struct Part<'a, F> {
    pub(crate) of: &'a F,
    pub(crate) range: (usize, usize),
}

// By hand: what hands them out need not be `Copy`.
impl<F> Clone for Part<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Part<'_, F> {}

impl<F: Fn(usize) -> f32> Scores for Part<'_, F> {
    #[inline(always)]
    fn len(self) -> usize {
        self.range.1 - self.range.0
    }
    #[inline(always)]
    fn score(self, k: usize) -> f32 {
        (self.of)(self.range.0 + k)
    }
}

/// Scores, measured from `top`.
#[derive(Clone, Copy)]
pub(crate) struct Stretch<Z> {
    pub(crate) z: Z,
    pub(crate) top: f64,
    /// Whether the ends are free; an end that is not has a neighbour below.
    pub(crate) free: (bool, bool),
}

impl<Z: Scores> Stretch<Z> {
    #[inline(always)]
    fn y(&self, k: usize) -> f64 {
        f64::from(self.z.score(k)) - self.top
    }
    /// `k`, or the last of the scores equal to it that follow: equal neighbours share a piece, and no rounding
    /// may part them.
    fn tied(&self, mut k: usize) -> usize {
        while k + 1 < self.z.len() && self.z.score(k + 1) == self.z.score(k) {
            k += 1;
        }
        k
    }
}

/// Where the string of a stretch leaves.
fn first(free: (bool, bool), lambda: f64) -> Start {
    if free.0 { Start::free(lambda) } else { Start::risen(lambda) }
}

/// Calls `emit` with the pieces of the prox of a stretch of at least one score, in their order.
pub(crate) fn prox<Z: Scores>(s: Stretch<Z>, lambda: f64, hulls: &mut Hulls, mut emit: impl FnMut(Piece)) {
    let n = s.z.len();
    // One score, or as good as one.
    if s.tied(0) + 1 == n {
        let pulls = f64::from(u8::from(!s.free.0) + u8::from(!s.free.1));
        emit(Piece { value: s.y(0) - pulls * lambda / n as f64, len: n as u32 });
        return;
    }
    let mut start = first(s.free, lambda);
    let (mut from, mut again) = (0, 0);
    while from < n {
        if again > 4 * n + 64 {
            by_hulls(s, from, start, lambda, hulls, emit);
            return;
        }
        let (piece, seen, next) = direct(s, from, start, lambda);
        emit(piece);
        from += piece.len as usize;
        again += seen - from.min(seen);
        start = next;
    }
}

/// Scores of a piece that are followed one by one; later runs of equal ones are taken at once.
const NEAR: usize = 64;

/// `1/k`.
static INVERSE: [f64; NEAR + 1] = {
    let mut table = [0.0; NEAR + 1];
    let mut k = 1;
    while k <= NEAR {
        table[k] = 1.0 / k as f64;
        k += 1;
    }
    table
};

/// The string of the smallest or the largest slope that stays in the tube.
#[derive(Clone, Copy)]
struct Extreme {
    slope: f64,
    /// Where it last touched the wall.
    touch: usize,
}

/// The two extremes, and the sum of the scores so far.
#[derive(Clone, Copy)]
struct Fan {
    low: Extreme,
    high: Extreme,
    sum: f64,
}

impl Fan {
    /// Takes in the walls at score `k`: the slopes to them are these.
    #[inline(always)]
    fn narrow(&mut self, k: usize, floor: f64, ceiling: f64) {
        self.low.touch = if floor >= self.low.slope { k } else { self.low.touch };
        self.low.slope = if floor >= self.low.slope { floor } else { self.low.slope };
        self.high.touch = if ceiling <= self.high.slope { k } else { self.high.touch };
        self.high.slope = if ceiling <= self.high.slope { ceiling } else { self.high.slope };
    }
}

/// The first piece of the string that leaves at score `from`, how many scores were looked at, and how the
/// string goes on.
///
/// The slopes to the walls come from a running sum, so that a step waits for one addition and one comparison of the
/// step before, however many operations it takes.
#[inline(always)]
fn direct<Z: Scores>(s: Stretch<Z>, from: usize, start: Start, lambda: f64) -> (Piece, usize, Start) {
    let n = s.z.len();
    let first = s.y(from);
    let mut fan = Fan {
        low: Extreme { slope: first + start.low, touch: from },
        high: Extreme { slope: first + start.high, touch: from },
        sum: first,
    };
    let bend = |at: usize, value: f64, seen: usize, next: Start| {
        let at = s.tied(at);
        (Piece { value, len: (at + 1 - from) as u32 }, seen, next)
    };
    let fall = |low: Extreme, seen: usize| bend(low.touch, low.slope, seen, Start::fallen(lambda));
    let rise = |high: Extreme, seen: usize| bend(high.touch, high.slope, seen, Start::risen(lambda));
    let near = n.min(from + NEAR);
    for k in from + 1..near {
        let inverse = INVERSE[k + 1 - from];
        fan.sum += s.y(k);
        let (floor, ceiling) = ((fan.sum + start.low) * inverse, (fan.sum + start.high) * inverse);
        if ceiling < fan.low.slope {
            return fall(fan.low, k);
        }
        if floor > fan.high.slope {
            return rise(fan.high, k);
        }
        fan.narrow(k, floor, ceiling);
    }
    let mut k = near;
    while k < n {
        // Along equal scores the walls are straight: what holds at the end of them holds between.
        let end = s.tied(k);
        fan.sum += s.y(k) * (end + 1 - k) as f64;
        let len = (end + 1 - from) as f64;
        let (floor, ceiling) = ((fan.sum + start.low) / len, (fan.sum + start.high) / len);
        if ceiling < fan.low.slope {
            return fall(fan.low, k);
        }
        if floor > fan.high.slope {
            return rise(fan.high, k);
        }
        fan.narrow(end, floor, ceiling);
        k = end + 1;
    }
    // The string ends in the middle of the tube, or on its lower wall.
    let end = if s.free.1 { 0.5 * (start.low + start.high) } else { start.low };
    let last = (fan.sum + end) / (n - from) as f64;
    if if s.free.1 { last < fan.low.slope } else { fan.low.touch + 1 < n } {
        fall(fan.low, n)
    } else if s.free.1 && last > fan.high.slope {
        rise(fan.high, n)
    } else {
        bend(n - 1, last, n, Start::free(lambda))
    }
}

/// All pieces from score `from` on: the minorant of the upper and the majorant of the lower wall.
///
/// The next slope lies between the first slopes of the two. Where they cross, one of them is a single segment,
/// and the string follows the first segment of the other.
fn by_hulls<Z: Scores>(
    s: Stretch<Z>,
    from: usize,
    start: Start,
    lambda: f64,
    Hulls { upper, lower }: &mut Hulls,
    mut emit: impl FnMut(Piece),
) {
    let n = s.z.len();
    upper.reset();
    lower.reset();
    // The string ends in a point: in the middle of the tube, or on its lower wall.
    let end = if s.free.1 { (-lambda, lambda) } else { (-2.0 * lambda, 0.0) };
    let (is_convex, is_concave) = (
        |before: Segment, after: Segment| after.exceeds(before),
        |before: Segment, after: Segment| before.exceeds(after),
    );
    let (mut bend, mut k) = (from, from);
    while k < n {
        let len = s.tied(k) + 1 - k;
        let sum = len as f64 * s.y(k);
        let (mut up, mut down) = if k == from { (start.high, start.low) } else { (0.0, 0.0) };
        k += len;
        if k == n {
            (up, down) = (up + end.0, down + end.1);
        }
        upper.push(Segment { sum: sum + up, len }, is_convex);
        lower.push(Segment { sum: sum + down, len }, is_concave);
        while lower.first().exceeds(upper.first()) {
            let is_rising = match (upper.is_single(), lower.is_single()) {
                (false, true) => true,
                (true, false) => false,
                // Two single segments cross by rounding alone.
                _ => break,
            };
            let (followed, other) = if is_rising { (&mut *upper, &mut *lower) } else { (&mut *lower, &mut *upper) };
            let last = followed.spend();
            let whole = other.first();
            other.reset();
            other.segments.push(Segment { sum: whole.sum - last.sum, len: whole.len - last.len });
            emit(last.piece());
            bend += last.len;
            if followed.is_lost() {
                if is_rising {
                    followed.read(s, bend..k, end.0, is_convex);
                } else {
                    followed.read(s, bend..k, end.1, is_concave);
                }
            }
        }
    }
    emit(upper.whole().piece());
}

impl Hull {
    /// The hull of scores that were pushed before and not kept; the last of the stretch brings what its end does.
    fn read<Z: Scores>(
        &mut self,
        s: Stretch<Z>,
        range: Range<usize>,
        end: f64,
        corner: impl Fn(Segment, Segment) -> bool + Copy,
    ) {
        self.reset();
        let mut k = range.start;
        while k < range.end {
            let len = s.tied(k) + 1 - k;
            let sum = len as f64 * s.y(k);
            k += len;
            self.push(Segment { sum: if k == s.z.len() { sum + end } else { sum }, len }, corner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(z: &[f32], free: (bool, bool), lambda: f64, hulls_only: bool) -> Vec<f64> {
        let (mut hulls, mut pieces) = (Hulls::default(), Vec::new());
        let s = Stretch { z, top: 0.0, free };
        if hulls_only {
            by_hulls(s, 0, first(free, lambda), lambda, &mut hulls, |piece| pieces.push(piece));
        } else {
            prox(s, lambda, &mut hulls, |piece| pieces.push(piece));
        }
        pieces.iter().flat_map(|piece| std::iter::repeat_n(piece.value, piece.len as usize)).collect()
    }

    /// The prox in the form that the definition has: a neighbour below an end takes λ from it.
    fn plain(z: &[f32], free: (bool, bool), lambda: f64) -> Vec<f64> {
        let mut y: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
        y[0] -= if free.0 { 0.0 } else { lambda };
        y[z.len() - 1] -= if free.1 { 0.0 } else { lambda };
        pulled(&y, lambda)
    }

    /// The same by a string pulled tight through the tube of width 2λ about the running sums, knot by knot: the slopes
    /// of its pieces. From each knot the funnel of slopes that stay inside is followed until it closes.
    fn pulled(y: &[f64], lambda: f64) -> Vec<f64> {
        let n = y.len();
        let mut sums = vec![0.0];
        y.iter().for_each(|y| sums.push(sums[sums.len() - 1] + y));
        let width = |k: usize| if k == n { 0.0 } else { lambda };
        let (mut x, mut height) = (Vec::new(), 0.0);
        while x.len() < n {
            let from = x.len();
            let slope = |to: usize, height_there: f64| (height_there - height) / (to - from) as f64;
            let (mut floor, mut ceiling) = ((f64::NEG_INFINITY, from), (f64::INFINITY, from));
            let mut k = from + 1;
            let knot = loop {
                let (low, high) = (slope(k, sums[k] - width(k)), slope(k, sums[k] + width(k)));
                if low > ceiling.0 {
                    break ceiling;
                }
                if high < floor.0 {
                    break floor;
                }
                if k == n {
                    break (low, n);
                }
                floor = if low >= floor.0 { (low, k) } else { floor };
                ceiling = if high <= ceiling.0 { (high, k) } else { ceiling };
                k += 1;
            };
            height += knot.0 * (knot.1 - from) as f64;
            x.resize(knot.1, knot.0);
        }
        x
    }

    #[test]
    fn both_algorithms_solve_random_stretches() {
        let mut rng = fastrand::Rng::with_seed(41);
        for round in 0..6000 {
            let n = rng.usize(1..40);
            let lambda = 10f64.powf(rng.f64() * 4.0 - 3.0);
            let z: Vec<f32> =
                (0..n).map(|_| if round % 3 == 0 { rng.i32(-3..4) as f32 } else { rng.f32() * 4.0 - 2.0 }).collect();
            let free = (rng.bool(), rng.bool());
            let want = plain(&z, free, lambda);
            for hulls_only in [false, true] {
                let x = solve(&z, free, lambda, hulls_only);
                assert_eq!(x.len(), n);
                for (k, (x, want)) in x.iter().zip(&want).enumerate() {
                    // Sums of 40 terms of size λ + 4.
                    assert!((x - want).abs() < 1e-13 * (4.0 + lambda), "{z:?} {free:?} {lambda} {k}: {x} {want}");
                }
                for k in 1..n {
                    assert!(z[k] != z[k - 1] || x[k].to_bits() == x[k - 1].to_bits(), "{z:?} {lambda}");
                }
            }
        }
    }

    #[test]
    fn pieces_may_take_the_place_of_their_scores() {
        let mut rng = fastrand::Rng::with_seed(42);
        for round in 0..200 {
            let n = rng.usize(1..400);
            let lambda = 10f64.powf(rng.f64() * 4.0 - 3.0);
            let mut z: Vec<f32> = (0..n).map(|_| rng.f32() * 4.0 - 2.0).collect();
            if round % 3 == 0 {
                z.sort_by(f32::total_cmp);
            }
            let free = (rng.bool(), rng.bool());
            for hulls_only in [false, true] {
                let want: Vec<f32> = solve(&z, free, lambda, hulls_only).into_iter().map(|x| x as f32).collect();
                let mut x = z.clone();
                let (cells, mut from) = (Cell::from_mut(&mut x[..]).as_slice_of_cells(), 0);
                let s = Stretch { z: cells, top: 0.0, free };
                let put = |piece: Piece| {
                    let to = from + piece.len as usize;
                    cells[from..to].iter().for_each(|cell| cell.set(piece.value as f32));
                    from = to;
                };
                if hulls_only {
                    by_hulls(s, 0, first(free, lambda), lambda, &mut Hulls::default(), put);
                } else {
                    prox(s, lambda, &mut Hulls::default(), put);
                }
                assert_eq!(x, want, "{z:?} {free:?} {lambda}");
            }
        }
    }

    #[test]
    fn the_hulls_of_a_long_stretch_keep_what_a_piece_needs() {
        // Ascending: the string follows a wall, and every score is a piece that is noticed some 2,000 scores later.
        let z: Vec<f32> = (0..300_000).map(|k| k as f32 * 1e-3).collect();
        let (lambda, mut hulls, mut count) = (2e3, Hulls::default(), 0);
        prox(Stretch { z: &z[..], top: 0.0, free: (true, true) }, lambda, &mut hulls, |_| count += 1);
        assert!(count > 290_000, "{count}");
        for hull in [&hulls.upper, &hulls.lower] {
            assert!(hull.segments.capacity() <= 16 * SPENT, "{}", hull.segments.capacity());
        }
    }

    #[test]
    fn hulls_that_are_not_kept_are_read_again() {
        // As above, with pieces that are noticed some 20,000 scores later: more than are kept.
        for is_falling in [false, true] {
            let slope = if is_falling { -1e-6 } else { 1e-6 };
            let z: Vec<f32> = (0..100_000).map(|k| k as f32 * slope).collect();
            for free in [(true, true), (false, true), (true, false)] {
                let (lambda, mut hulls, mut x) = (100.0, Hulls::default(), Vec::new());
                let s = Stretch { z: &z[..], top: 0.0, free };
                by_hulls(s, 0, first(free, lambda), lambda, &mut hulls, |piece| {
                    x.extend(std::iter::repeat_n(piece.value, piece.len as usize));
                });
                for hull in [&hulls.upper, &hulls.lower] {
                    assert!(hull.segments.capacity() <= 2 * KEPT, "{}", hull.segments.capacity());
                }
                for (x, want) in x.iter().zip(plain(&z, free, lambda)) {
                    // Sums of 100,000 terms of size 0.1.
                    assert!((x - want).abs() < 1e-9, "{free:?} {is_falling}: {x} {want}");
                }
                assert_eq!(x.len(), z.len());
            }
        }
    }

    #[test]
    fn a_row_made_to_be_read_again_and_again_is_left_to_the_hulls() {
        // A slow fall behind a high wall: each bend is noticed only at the end of the row.
        let n = 20_000;
        let mut z: Vec<f32> = (0..n).map(|k| -(k as f32).sqrt() * 1e-3).collect();
        z.push(-1e6);
        let lambda = 50.0;
        let (x, want) = (solve(&z, (true, true), lambda, false), plain(&z, (true, true), lambda));
        let worst = x.iter().zip(&want).map(|(x, want)| (x - want).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-9, "{worst:e}");
    }
}
