//! Single precision by whole blocks of rows: the bridge from batches to the kernels.
//!
//! A mapping that names a kernel ([`Mapping::kernel`](crate::Mapping::kernel)) has its `f32` rows computed
//! by it, many at a time; one that is [`Single`] computes them one by one; everything else goes row by row in
//! `f64`. The contract is the same, and so are the tests.

use crate::batch::Plan;
use crate::kernel::{self, Map, Status};
use crate::structured::StructuredKernel;
use crate::view::RowLayout;
use crate::{Error, Float, Mapping, View, numeric};
use std::cell::Cell;
use std::ops::Range;

/// A kernel and the factor 1/γ on differences of scores.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub(crate) map: Map,
    pub(crate) scale: f32,
}

impl Kernel {
    /// The kernel of a mapping of strength `gamma`; `None` where a product with 1/γ might leave the range of
    /// `f32`, which is for `f64`.
    pub(crate) fn new(map: Map, gamma: f64) -> Option<Self> {
        (1e-6..=1e6).contains(&gamma).then_some(Self { map, scale: (1.0 / gamma) as f32 })
    }

    /// Nanoseconds that an entry takes at least, on the quickest processors there are. Powers of any exponent cost
    /// several times what closed forms do.
    pub(crate) fn cost(self) -> f64 {
        match self.map {
            Map::Entmax(alpha) if alpha != 1.5 && alpha != 2.0 => 0.5,
            _ => 0.06,
        }
    }

    /// Replaces the scores of one row without bad ones by its probabilities.
    pub(crate) fn in_place(self, x: &mut [f32]) {
        kernel::in_place(self.map, x, self.scale);
    }

    /// Probabilities of one row without bad scores.
    pub(crate) fn forward(self, z: &[f32], out: &mut [f32], Buffers { scratch, .. }: &mut Buffers) {
        let (d, Self { map, scale }) = (z.len(), self);
        kernel::forward(
            map,
            kernel::Forward { z, d, scale, out, stream: false, tau: None, status: &mut [Status::Ok], scratch },
        );
    }
}

/// What an entry takes at least, in the same unit, where rows are computed one by one in `f64`.
pub(crate) const DOUBLE_COST: f64 = 1.0;

/// A mapping that computes a row in single precision as it is, without a copy in `f64`, though no kernel serves
/// whole blocks of its rows: each row has a scale of its own, or it needs none.
///
/// Scores are finite, at least one of them, or −∞ where an entry takes no part.
pub trait Single: Send + Sync {
    /// Writes Π(z) into `p`; `false` if the row is for `f64`, and then `p` may hold anything.
    fn forward(&self, z: &[f32], p: &mut [f32], buffers: &mut Buffers) -> bool;

    /// Replaces the scores, all finite, by Π(z); `false` if it cannot, and then nothing was changed.
    fn in_place(&self, _x: &mut [f32]) -> bool {
        false
    }

    /// Writes `Jᵀv` into `out`.
    fn vjp(&self, z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]);
}

/// Rows of more entries are not copied, where that can be helped: 256 KiB in single precision, on every thread.
pub(crate) const COPIED: usize = 1 << 16;

/// Replaces the scores of one row, all finite, by its probabilities, by whatever kernel the mapping has; `false` if it has
/// none that can, and then nothing was changed.
pub(crate) fn in_place(mapping: &impl Mapping, x: &mut [f32]) -> bool {
    if let Some(kernel) = mapping.kernel() {
        kernel.in_place(x);
    } else if let Some(StructuredKernel(map)) = mapping.structured() {
        kernel::structured_in_place(map, x, &mut kernel::Work::default());
    } else {
        return mapping.single().is_some_and(|single| single.in_place(x));
    }
    true
}

/// Whether the scores are such a row: no NaN, no +∞, and not all −∞.
pub(crate) fn is_plain(z: &[f32]) -> bool {
    let bad = |z: f32| z.is_nan() || z == f32::INFINITY;
    !z.iter().fold(false, |any, z| any | bad(*z)) && z.iter().any(|z| *z > f32::NEG_INFINITY)
}

/// The entries of a row that take part, widened.
pub(crate) fn finite<T: Float>(z: &[T]) -> impl Iterator<Item = f64> + Clone {
    z.iter().map(|z| z.widen()).filter(|z| *z > f64::NEG_INFINITY)
}

/// Memory of one chunk of rows. What the kernels work in is kept for the next chunk of the thread, unless
/// it is large.
#[derive(Debug)]
pub struct Buffers {
    gather: [Vec<f32>; 3],
    status: Vec<Status>,
    scratch: kernel::Scratch,
}

/// Bytes of working memory that a thread keeps at most.
const SPARE: usize = 1 << 18;

thread_local! {
    static KEPT: Cell<Option<kernel::Scratch>> = const { Cell::new(None) };
}

impl Default for Buffers {
    fn default() -> Self {
        Self { gather: Default::default(), status: Vec::new(), scratch: KEPT.take().unwrap_or_default() }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.scratch.bytes() <= SPARE {
            // A thread that is ending has nowhere to keep it.
            let _ = KEPT.try_with(|kept| kept.set(Some(std::mem::take(&mut self.scratch))));
        }
    }
}

/// The entries of a row that are not 0, and where they are.
#[derive(Debug, Default)]
pub(crate) struct Support {
    pub(crate) index: Vec<u32>,
    pub(crate) value: Vec<f32>,
}

impl Support {
    /// Those of that row, in the place of the last.
    pub(crate) fn find(&mut self, p: &[f32]) {
        kernel::support(p, &mut self.value, &mut self.index);
    }
}

/// Bytes of a result that no cache is expected to hold until it is read, beside the scores it came from.
const LARGE: usize = 16 << 20;

/// Whether the result of a call is that large. A question of the whole call: each chunk of rows would fit.
fn is_large(plan: &Plan<'_>) -> bool {
    plan.z.count() * plan.z.len >= LARGE / size_of::<f32>()
}

/// Rows of an array one behind the other, borrowed if they lie like that.
pub(crate) fn block<'a>(
    layout: &RowLayout,
    data: &'a [f32],
    rows: &Range<usize>,
    buffer: &'a mut Vec<f32>,
) -> &'a [f32] {
    if layout.is_packed() {
        return layout.packed(data, rows);
    }
    if rows.len() == 1 {
        return layout.read(data, rows.start, buffer);
    }
    let mut row_buffer = Vec::new();
    buffer.clear();
    rows.clone().for_each(|row| buffer.extend_from_slice(layout.read(data, row, &mut row_buffer)));
    buffer
}

/// The scores of rows with −∞ at masked entries, which is how kernels know a mask.
pub(crate) fn scores<'a>(plan: &Plan<'_>, data: &'a [f32], rows: &Range<usize>, buffer: &'a mut Vec<f32>) -> &'a [f32] {
    if !plan.is_masked() {
        return block(&plan.z, data, rows, buffer);
    }
    let mut row_buffer = Vec::new();
    buffer.clear();
    for row in rows.clone() {
        let takes_part = plan.mask(row);
        let row = plan.z.read(data, row, &mut row_buffer).iter().enumerate();
        buffer.extend(row.map(|(i, z)| if takes_part(i) { *z } else { f32::NEG_INFINITY }));
    }
    buffer
}

/// The error of a row that holds a bad score.
pub(crate) fn bad_score(plan: &Plan<'_>, data: &[f32], row: usize) -> Option<Error> {
    let (mut buffer, takes_part) = (Vec::new(), plan.mask(row));
    let z = plan.z.read(data, row, &mut buffer);
    let bad = |z: f32| z.is_nan() || z == f32::INFINITY;
    let index = (0..z.len()).find(|i| takes_part(*i) && bad(z[*i]))?;
    Some(plan.bad_score(row, index, z[index].widen()))
}

/// Probabilities of rows that share a kernel; returns the first bad score.
pub(crate) fn forward(
    kernel: Kernel,
    plan: &Plan<'_>,
    z: &[f32],
    rows: &Range<usize>,
    out: &mut [f32],
    buffers: &mut Buffers,
) -> Option<Error> {
    let Buffers { gather: [gather, ..], status, scratch } = buffers;
    status.clear();
    status.resize(rows.len(), Status::Ok);
    let Kernel { map, scale } = kernel;
    let block = scores(plan, z, rows, gather);
    let (d, stream) = (plan.z.len, is_large(plan));
    kernel::forward(map, kernel::Forward { z: block, d, scale, out, stream, tau: None, status, scratch });
    let first = first_bad(status)?;
    bad_score(plan, z, rows.start + first)
}

/// The first bad row. Whether there is one is asked of all rows at once, which takes a fraction of the time.
fn first_bad(status: &[Status]) -> Option<usize> {
    let bad = |status: &Status| *status == Status::Bad;
    if status.iter().fold(false, |any, status| any | bad(status)) { status.iter().position(bad) } else { None }
}

/// `Jᵀv` of rows that share a kernel, and `<v, ∂p/∂α>` of each if `slopes` asks for it; returns the first
/// bad score. The forward pass has filled bad rows of `p` with NaN.
#[expect(clippy::too_many_arguments, reason = "the arguments of a backward pass and their places")]
pub(crate) fn backward<T: Float>(
    kernel: Kernel,
    plan: &Plan<'_>,
    z: &[f32],
    (p, v): (&View<'_, T>, &View<'_, T>),
    rows: &Range<usize>,
    out: &mut [f32],
    slopes: Option<&mut [f64]>,
    buffers: &mut Buffers,
) -> Option<Error> {
    let Buffers { gather: [gp, gv, gz], scratch, .. } = buffers;
    let (pd, vd) = (T::as_f32(p.data)?, T::as_f32(v.data)?);
    let p = block(&p.layout.rows(plan.axis), pd, rows, gp);
    let (d, Kernel { map, scale }) = (plan.z.len, kernel);
    let layout = v.layout.rows(plan.axis);
    if d > COPIED && slopes.is_none() && !layout.is_contiguous() && rows.len() == 1 {
        // A row of v that would have to be copied is, to where the gradient goes.
        layout.gather(vd, rows.start, out);
        if kernel::backward_in_place(map, p, out, scale) {
            return spoil(plan, z, p, rows, out);
        }
    }
    let v = block(&layout, vd, rows, gv);
    let job = kernel::Backward { p, v, d, scale, out: &mut *out, scratch };
    let is_any_bad = match (map, slopes) {
        // Masked entries have no probability, so whatever score they have is not looked at.
        (Map::Entmax(alpha), Some(slopes)) => {
            kernel::alpha_backward(alpha, job, block(&plan.z, z, rows, gz), slopes);
            true
        }
        _ => kernel::backward(map, job),
    };
    if is_any_bad { spoil(plan, z, p, rows, out) } else { None }
}

/// Fills the gradients of bad rows, which the forward pass has filled with NaN; returns the first bad score.
pub(crate) fn spoil(plan: &Plan<'_>, z: &[f32], p: &[f32], rows: &Range<usize>, out: &mut [f32]) -> Option<Error> {
    let (d, mut first) = (plan.z.len, None);
    for (i, row) in rows.clone().enumerate().filter(|(i, _)| p[i * d].is_nan()) {
        out[i * d..(i + 1) * d].fill(f32::NAN);
        first = first.or_else(|| bad_score(plan, z, row));
    }
    first
}

/// Whether the kernel knows the gradient in its parameter.
pub(crate) fn has_slope(kernel: Kernel) -> bool {
    matches!(kernel.map, Map::Entmax(_))
}

/// Losses of class targets of rows that share a kernel, with the gradient `gain·(p − y)` in `out`; `None` if
/// a row is not for the kernel (its class is masked), and nothing was written.
#[expect(clippy::too_many_arguments, reason = "the arguments of a loss and their places")]
pub(crate) fn loss(
    kernel: Kernel,
    plan: &Plan<'_>,
    z: &[f32],
    rows: &Range<usize>,
    class: impl Fn(usize) -> Option<u32>,
    gain: f64,
    out: &mut [f32],
    values: &mut Vec<f64>,
    buffers: &mut Buffers,
) -> Option<Option<Error>> {
    if rows.len() == 1 && plan.z.len > COPIED && (plan.is_masked() || !plan.z.is_contiguous()) {
        let (value, issue) = loss_in_place(kernel, plan, z, rows.start, class(rows.start), gain, out)?;
        values.push(value);
        return Some(issue);
    }
    let Buffers { gather: [gather, ..], status, scratch } = buffers;
    let (d, Kernel { map, scale }) = (plan.z.len, kernel);
    let block = scores(plan, z, rows, gather);
    let target: Vec<u32> = rows.clone().map(|row| class(row).unwrap_or(kernel::IGNORE)).collect();
    let masked =
        |(i, class): (usize, &u32)| *class != kernel::IGNORE && block[i * d + *class as usize] == f32::NEG_INFINITY;
    if target.iter().enumerate().any(masked) {
        return None;
    }
    status.clear();
    status.resize(rows.len(), Status::Ok);
    let start = values.len();
    values.resize(start + rows.len(), 0.0);
    let (loss, gain, target) = (&mut values[start..], gain as f32, &target[..]);
    let stream = is_large(plan);
    kernel::loss(map, kernel::Loss { z: block, d, scale, target, gain, loss, grad: out, stream, status, scratch });
    let bad = |i: usize| status[i] == Status::Bad && target[i] != kernel::IGNORE;
    Some((0..rows.len()).find(|i| bad(*i)).and_then(|i| bad_score(plan, z, rows.start + i)))
}

/// The loss of a long row that would have to be copied, computed in the place of its gradient:
/// `<z, p − y> − γΩ(p)`, for Ω is 0 at a class.
fn loss_in_place(
    Kernel { map, scale }: Kernel,
    plan: &Plan<'_>,
    z: &[f32],
    row: usize,
    class: Option<u32>,
    gain: f64,
    out: &mut [f32],
) -> Option<(f64, Option<Error>)> {
    let Some(class) = class.map(|class| class as usize) else {
        out.fill(0.0);
        return Some((0.0, None));
    };
    let ((first, step), takes_part) = (plan.z.position(row), plan.mask(row));
    let score = |i: usize| z[(first + i as isize * step) as usize];
    if !takes_part(class) || score(class) == f32::NEG_INFINITY {
        return None;
    }
    for (i, out) in out.iter_mut().enumerate() {
        *out = if takes_part(i) { score(i) } else { f32::NEG_INFINITY };
    }
    if kernel::in_place(map, out, scale) != Status::Ok {
        return Some((f64::NAN, bad_score(plan, z, row)));
    }
    // Measured from the class, so that a shift of all scores takes no digits.
    let origin = f64::from(score(class));
    let support = || out.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(i, p)| (i, f64::from(*p)));
    let linear = numeric::sum(support().map(|(i, p)| p * (f64::from(score(i)) - origin)));
    let omega = numeric::sum(support().map(|(_, p)| map.omega(p)));
    let value = (linear - omega / f64::from(scale)).max(0.0);
    out[class] -= 1.0;
    out.iter_mut().for_each(|out| *out = (f64::from(*out) * gain) as f32);
    Some((value, None))
}
