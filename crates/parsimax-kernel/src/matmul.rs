//! Products of large matrices, whose right factor is packed once and used many times.
//!
//! Plainly, `C = A·B` is three nested loops. Here `B` lies in panels of two vectors of columns
//! ([`Packed`]) and the sums of a few rows of `C` by one panel stay in registers. While the first
//! rows go through a panel, the next panel is fetched: with few rows the weights come from far away.
//! The rows of `A` are cut into tiles of nearly equal height instead of full ones and a rest, so that
//! 32 rows cost 32 rows of work; they are read where they lie, unless they lie across. The inner index
//! is cut evenly into pieces of at most `DEPTH`. Each entry of `C` is one chain of fused multiply–adds
//! a piece, in the order of the inner index: it depends on its row of `A` and its column of `B` alone.

use super::dispatch::{self, Level, active, with_level};
use super::vector::{MAX_LANES, Vector, outlined};

/// Most rows of a tile: 6 × 2 vectors of sums, two of the right factor and one of the left are 15
/// of 16 registers.
const HEIGHT: usize = 6;

/// Most rows of a panel that are multiplied before the next: 512 × 16 floats are a first-level cache.
/// Shorter pieces read and write `C` more often than they save.
const DEPTH: usize = 512;

/// Rows of `A` that meet a panel before the next: with `DEPTH` columns they fit the second-level cache.
const ROWS: usize = 96;

/// A matrix of which entry `(i, j)` is `data[i · row + j · column]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Where the entries are.
    pub data: &'a [f32],
    /// Number of rows and columns.
    pub shape: (usize, usize),
    /// Step from a row to the next.
    pub row: usize,
    /// Step from a column to the next.
    pub column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows one after another, `row` floats apart, of which the first `columns` belong to the matrix.
    #[must_use]
    pub fn new(data: &'a [f32], rows: usize, columns: usize, row: usize) -> Matrix<'a> {
        Matrix { data, shape: (rows, columns), row, column: 1 }
    }

    /// Rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Matrix<'a> {
        Matrix { shape: (self.shape.1, self.shape.0), row: self.column, column: self.row, ..self }
    }

    /// Whether all entries are in the slice.
    fn fits(&self) -> bool {
        let (rows, columns) = self.shape;
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// The right factor of a product, in panels for the instruction set that was active.
#[derive(Clone, Debug)]
pub struct Packed {
    level: Level,
    shape: (usize, usize),
    panels: Vec<f32>,
}

impl Default for Packed {
    /// A matrix without entries.
    fn default() -> Packed {
        Packed { level: active(), shape: (0, 0), panels: Vec::new() }
    }
}

impl Packed {
    /// Packs a matrix.
    ///
    /// # Panics
    /// If the matrix reaches beyond its slice.
    #[must_use]
    pub fn new(b: Matrix<'_>) -> Packed {
        let mut packed = Packed::default();
        packed.pack(b);
        packed
    }

    /// Packs another matrix in place of this one, into the same memory if it is large enough.
    ///
    /// # Panics
    /// If the matrix reaches beyond its slice.
    pub fn pack(&mut self, b: Matrix<'_>) {
        assert!(b.fits(), "matmul: the right factor of {:?} entries lies in its slice", b.shape);
        let width = 2 * dispatch::lanes();
        let (depth, columns) = b.shape;
        (self.level, self.shape) = (active(), b.shape);
        self.panels.resize(columns.div_ceil(width) * depth * width, 0.0);
        for (j, panel) in self.panels.chunks_exact_mut((depth * width).max(1)).enumerate() {
            let (first, count) = (j * width, width.min(columns - j * width));
            if count < width {
                panel.fill(0.0);
            }
            if b.column == 1 {
                for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                    let from = &b.data[i * b.row + first..][..count];
                    // Whole lines of the usual width are two or three instructions, not a call.
                    match (to.first_chunk_mut::<16>(), from.first_chunk::<16>()) {
                        (Some(to), Some(from)) if width == 16 => *to = *from,
                        _ => to[..count].copy_from_slice(from),
                    }
                }
            } else {
                pack_across(panel, width, b, first, count);
            }
        }
    }

    /// Rows and columns of the matrix.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }
}

/// Fills a panel from columns whose entries lie together: a few of them side by side, so that both
/// the reads and the writes stay in cached lines.
fn pack_across(panel: &mut [f32], width: usize, b: Matrix<'_>, first: usize, count: usize) {
    for (block, rows) in panel.chunks_mut(16 * width).enumerate() {
        for c in 0..count {
            let from = &b.data[(first + c) * b.column + 16 * block * b.row..];
            let rows = rows.chunks_exact_mut(width);
            if b.row == 1 {
                rows.zip(from).for_each(|(to, x)| to[c] = *x);
            } else {
                rows.enumerate().for_each(|(i, to)| to[c] = from[i * b.row]);
            }
        }
    }
}

/// A block of `C`: row `i` starts at `i · row`.
#[derive(Debug)]
pub struct Target<'a> {
    /// Where the entries are.
    pub data: &'a mut [f32],
    /// Step from a row to the next.
    pub row: usize,
    /// Whether the product is added to what is there.
    pub add: bool,
}

/// `C = A·B`, or `C + A·B`. `scratch` is working memory that grows to what was needed.
///
/// # Panics
/// If the shapes do not fit each other or the slices.
pub fn multiply(a: Matrix<'_>, b: &Packed, c: Target<'_>, scratch: &mut Vec<f32>) {
    let ((m, k), (depth, n)) = (a.shape, b.shape);
    assert!(k == depth && a.fits(), "matmul: {m} × {k} times {depth} × {n}");
    assert!(m == 0 || n == 0 || (n <= c.row || m == 1) && (m - 1) * c.row + n <= c.data.len(), "matmul: room for C");
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !c.add {
            c.data.chunks_mut(c.row).take(m).for_each(|row| row[..n].fill(0.0));
        }
        return;
    }
    scratch.resize(ROWS * DEPTH, 0.0);
    with_level(b.level, || dispatch::multiply(a, b, c, scratch));
}

/// Lanes of `V`. Nothing of it is executed: `unsafe` is what the dispatch expects.
///
/// # Safety
/// None.
pub(super) unsafe fn lanes<V: Vector>() -> usize {
    V::LANES
}

/// A number of things cut into pieces of nearly equal size.
#[derive(Clone, Copy)]
struct Cut {
    pieces: usize,
    low: usize,
    longer: usize,
}

impl Cut {
    /// Into pieces of at most `most`.
    fn new(count: usize, most: usize) -> Cut {
        let pieces = count.div_ceil(most);
        Cut { pieces, low: count / pieces, longer: count % pieces }
    }

    /// The size of the `t`-th piece, and where it starts.
    #[inline]
    fn piece(self, t: usize) -> (usize, usize) {
        (self.low + usize::from(t < self.longer), t * self.low + t.min(self.longer))
    }
}

/// The product, block by block.
///
/// # Safety
/// The CPU has the instruction set of `V`, for which `b` was packed, and `multiply` has checked the rest.
pub(super) unsafe fn blocks<V: Vector>(a: Matrix<'_>, b: &Packed, c: Target<'_>, scratch: &mut [f32]) {
    let ((m, k), (_, n)) = (a.shape, b.shape);
    let width = 2 * V::LANES;
    let (depths, panels) = (Cut::new(k, DEPTH), n.div_ceil(width));
    for d in 0..depths.pieces {
        let (depth, from) = depths.piece(d);
        let add = c.add || from > 0;
        for top in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - top);
            let tiles = Cut::new(rows, HEIGHT);
            // Rows that lie along are read where they are.
            let is_along = a.column == 1;
            if !is_along {
                pack_left(a, tiles, (top, rows), (from, depth), scratch);
            }
            for j in 0..panels {
                let columns = width.min(n - j * width);
                for t in 0..tiles.pieces {
                    let (height, first) = tiles.piece(t);
                    // SAFETY: the panel has `k` rows of `width` floats, and so has the next one, if it is asked for;
                    // rows `top + first ..` of `A` lie in its slice, or `rows · depth` floats, tile after tile, in
                    // `scratch`; rows `top + first ..` and `columns` of `C` lie in it.
                    unsafe {
                        let (left, left_row, left_step) = if is_along {
                            (a.data.as_ptr().add((top + first) * a.row + from), a.row, 1)
                        } else {
                            (scratch.as_ptr().add(first * depth), 1, height)
                        };
                        let right = b.panels.as_ptr().add((j * k + from) * width);
                        let ahead = if t == 0 && j + 1 < panels { right.add(k * width) } else { std::ptr::null() };
                        let to = c.data.as_mut_ptr().add((top + first) * c.row + j * width);
                        let row = c.row;
                        let corner = Corner { left, left_row, left_step, right, ahead, depth, to, row, columns, add };
                        match height {
                            1 => corner_1::<V>(corner),
                            2 => corner_2::<V>(corner),
                            3 => corner_3::<V>(corner),
                            4 => corner_4::<V>(corner),
                            5 => corner_5::<V>(corner),
                            _ => corner_6::<V>(corner),
                        }
                    }
                }
            }
        }
    }
}

/// Copies a block of `A`, tile after tile; within a tile the entries that are multiplied together
/// lie together. The reads follow the matrix as it lies in memory.
fn pack_left(a: Matrix<'_>, tiles: Cut, (top, rows): (usize, usize), (from, depth): (usize, usize), to: &mut [f32]) {
    let start = top * a.row + from * a.column;
    if a.row == 1 {
        for i in 0..depth {
            let column = &a.data[start + i * a.column..][..rows];
            for t in 0..tiles.pieces {
                let (height, first) = tiles.piece(t);
                let to = &mut to[first * depth + i * height..][..height];
                let from = &column[first..first + height];
                // The two heights of long blocks, of which the compiler knows the lengths.
                match height {
                    6 => to[..6].copy_from_slice(&from[..6]),
                    5 => to[..5].copy_from_slice(&from[..5]),
                    _ => to.copy_from_slice(from),
                }
            }
        }
        return;
    }
    for t in 0..tiles.pieces {
        let (height, first) = tiles.piece(t);
        let to = &mut to[first * depth..][..height * depth];
        for r in 0..height {
            let row = &a.data[start + (first + r) * a.row..];
            for (i, to) in to.chunks_exact_mut(height).enumerate() {
                to[r] = row[i * a.column];
            }
        }
    }
}

/// One tile of rows by one panel.
struct Corner {
    /// The rows of `A`, from a row to the next and from a column to the next.
    left: *const f32,
    left_row: usize,
    left_step: usize,
    right: *const f32,
    /// The panel that comes next; null if it need not be fetched.
    ahead: *const f32,
    depth: usize,
    to: *mut f32,
    row: usize,
    columns: usize,
    add: bool,
}

/// The sums of `H` rows by one panel.
///
/// # Safety
/// `left` is readable for `H` rows of `depth` floats at its steps, `right` for `depth` rows of two vectors, and `to`
/// is readable and writable for `columns` floats of `H` rows; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn corner<V: Vector, const H: usize>(job: Corner) {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut sums = [[V::splat(0.0); 2]; H];
        let (mut left, mut right, mut ahead) = (job.left, job.right, job.ahead);
        for _ in 0..job.depth {
            if !job.ahead.is_null() {
                V::prefetch(ahead);
                ahead = ahead.add(2 * V::LANES);
            }
            let (b0, b1) = (V::load(right), V::load(right.add(V::LANES)));
            for r in 0..H {
                let x = V::splat(*left.add(r * job.left_row));
                sums[r][0] = x.fma(b0, sums[r][0]);
                sums[r][1] = x.fma(b1, sums[r][1]);
            }
            left = left.add(job.left_step);
            right = right.add(2 * V::LANES);
        }
        for r in 0..H {
            write::<V>(sums[r], job.to.add(r * job.row), job.columns, job.add);
        }
    }
}

/// Writes, or adds, one row of a panel.
///
/// # Safety
/// `to` is readable and writable for `columns ≤ 2 · LANES` floats.
#[inline(always)]
unsafe fn write<V: Vector>(sums: [V; 2], to: *mut f32, columns: usize, add: bool) {
    // SAFETY: as the caller vouches.
    unsafe {
        if columns == 2 * V::LANES {
            for (b, sum) in sums.into_iter().enumerate() {
                let to = to.add(b * V::LANES);
                let sum = if add { V::load(to).add(sum) } else { sum };
                sum.store(to);
            }
        } else {
            let mut buffer = [0.0; 2 * MAX_LANES];
            sums[0].store(buffer.as_mut_ptr());
            sums[1].store(buffer.as_mut_ptr().add(V::LANES));
            for (i, sum) in buffer[..columns].iter().enumerate() {
                *to.add(i) = if add { *to.add(i) + sum } else { *sum };
            }
        }
    }
}

/// One function for each height, compiled for the instruction set.
macro_rules! corners {
    ($($name:ident $inner:ident $height:literal;)*) => {$(
        #[inline(always)]
        unsafe fn $inner<V: Vector>(job: Corner) {
            // SAFETY: as the caller vouches.
            unsafe { corner::<V, $height>(job) }
        }
        outlined! { unsafe fn $name<V>(job: Corner) -> () => $inner }
    )*};
}
corners! {
    corner_1 inner_1 1;
    corner_2 inner_2 2;
    corner_3 inner_3 3;
    corner_4 inner_4 4;
    corner_5 inner_5 5;
    corner_6 inner_6 6;
}
