//! The operations, for rows of `f32` and of `f64` that lie one behind the other.

use crate::status::code;
use crate::{Handle, is_single_threaded};
use parsimax::loss::{FenchelYoung, Target};
use parsimax::{Attention, Error, Float, Mapping, Result, Rows, View, ViewMut};

/// Pointers to arrays of one shape.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    d: usize,
}

impl Shape {
    /// # Safety
    /// `data` points to `rows · d` values that nobody writes during `'a`.
    unsafe fn view<'a, T>(self, data: *const T) -> Result<View<'a, T>> {
        // SAFETY: as the contract says.
        View::new(unsafe { std::slice::from_raw_parts(data, self.rows * self.d) }, &[self.rows, self.d])
    }

    /// # Safety
    /// `data` points to `rows · d` values that nobody else touches during `'a`.
    unsafe fn view_mut<'a, T>(self, data: *mut T) -> Result<ViewMut<'a, T>> {
        // SAFETY: as the contract says.
        ViewMut::new(unsafe { std::slice::from_raw_parts_mut(data, self.rows * self.d) }, &[self.rows, self.d])
    }
}

fn rows(handle: &Handle) -> Rows<'_, Box<dyn Mapping>> {
    let rows = Rows::new(&handle.mapping);
    if is_single_threaded() { rows.single_threaded() } else { rows }
}

/// Probabilities of `z` into `p`.
unsafe fn forward<T: Float>(handle: &Handle, z: *const T, p: *mut T, shape: Shape) -> Result<()> {
    // SAFETY: the exported functions pass their contract on.
    unsafe { rows(handle).forward(shape.view(z)?, shape.view_mut(p)?) }
}

/// `Jᵀv` into `out`.
unsafe fn vjp<T: Float>(
    handle: &Handle,
    z: *const T,
    p: *const T,
    v: *const T,
    out: *mut T,
    shape: Shape,
) -> Result<()> {
    // SAFETY: the exported functions pass their contract on.
    unsafe { rows(handle).vjp(shape.view(z)?, shape.view(p)?, shape.view(v)?, shape.view_mut(out)?) }
}

/// `Jᵀv` into `out` and the gradient in the mapping's parameter into `gradient`, in one sweep.
unsafe fn vjp_with_parameter<T: Float>(
    handle: &Handle,
    z: *const T,
    p: *const T,
    v: *const T,
    out: *mut T,
    gradient: *mut f64,
    shape: Shape,
) -> Result<()> {
    // SAFETY: the exported functions pass their contract on; `gradient` has room for one number.
    unsafe {
        let (z, p, v, out) = (shape.view(z)?, shape.view(p)?, shape.view(v)?, shape.view_mut(out)?);
        *gradient = rows(handle).vjp_with_parameter(z, p, v, out)?[0];
    }
    Ok(())
}

/// The sparse result; only its size leaves.
unsafe fn csr<T: Float>(handle: &Handle, z: *const T, stored: *mut usize, shape: Shape) -> Result<()> {
    // SAFETY: the exported functions pass their contract on; `stored` has room for one number.
    unsafe {
        *stored = rows(handle).csr(shape.view(z)?)?.values.len();
    }
    Ok(())
}

/// The mean Fenchel–Young loss against classes into `mean`, its gradient into `gradient`.
unsafe fn loss<T: Float>(
    handle: &Handle,
    z: *const T,
    classes: *const i64,
    gradient: *mut T,
    mean: *mut f64,
    shape: Shape,
) -> Result<()> {
    let regularized = handle
        .mapping
        .regularized()
        .ok_or(Error::Unsupported { operation: handle.mapping.name(), what: "it has no Fenchel-Young loss" })?;
    let loss = FenchelYoung::new(regularized);
    let loss = if is_single_threaded() { loss.single_threaded() } else { loss };
    // SAFETY: the exported functions pass their contract on; there is one class per row, and `mean` has
    // room for one number.
    unsafe {
        let target = Target::Classes(std::slice::from_raw_parts(classes, shape.rows));
        let value = loss.loss_and_gradient(shape.view(z)?, target, shape.view_mut(gradient)?)?;
        *mean = value.value().unwrap_or(f64::NAN);
    }
    Ok(())
}

/// Exports the generic functions above for one number type.
macro_rules! export {
    ($type:ty, $forward:ident, $vjp:ident, $vjp_with_parameter:ident, $csr:ident, $loss:ident) => {
        /// Probabilities of `z` into `p`.
        ///
        /// # Safety
        /// `handle` is alive; the arrays hold `rows · d` values and do not overlap.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $forward(
            handle: &Handle,
            z: *const $type,
            p: *mut $type,
            rows: usize,
            d: usize,
        ) -> i32 {
            // SAFETY: the caller's contract.
            code(unsafe { forward(handle, z, p, Shape { rows, d }) })
        }

        /// `Jᵀv` into `out`, at scores `z` with probabilities `p`.
        ///
        /// # Safety
        /// `handle` is alive; the arrays hold `rows · d` values; `out` overlaps none of the others.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $vjp(
            handle: &Handle,
            z: *const $type,
            p: *const $type,
            v: *const $type,
            out: *mut $type,
            rows: usize,
            d: usize,
        ) -> i32 {
            // SAFETY: the caller's contract.
            code(unsafe { vjp(handle, z, p, v, out, Shape { rows, d }) })
        }

        /// `Jᵀv` into `out` and the gradient of `Σ <v, Π(z)>` in the mapping's parameter into `gradient`.
        ///
        /// # Safety
        /// `handle` is alive; the arrays hold `rows · d` values, `gradient` one; `out` overlaps none.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $vjp_with_parameter(
            handle: &Handle,
            z: *const $type,
            p: *const $type,
            v: *const $type,
            out: *mut $type,
            gradient: *mut f64,
            rows: usize,
            d: usize,
        ) -> i32 {
            // SAFETY: the caller's contract.
            code(unsafe { vjp_with_parameter(handle, z, p, v, out, gradient, Shape { rows, d }) })
        }

        /// The sparse result of `z`; `stored` receives the number of its entries.
        ///
        /// # Safety
        /// `handle` is alive; `z` holds `rows · d` values, `stored` one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $csr(
            handle: &Handle,
            z: *const $type,
            stored: *mut usize,
            rows: usize,
            d: usize,
        ) -> i32 {
            // SAFETY: the caller's contract.
            code(unsafe { csr(handle, z, stored, Shape { rows, d }) })
        }

        /// The mean Fenchel–Young loss of `z` against classes into `mean`, its gradient into `gradient`.
        ///
        /// # Safety
        /// `handle` is alive; `z` and `gradient` hold `rows · d` values and do not overlap, `classes`
        /// holds `rows`, `mean` one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $loss(
            handle: &Handle,
            z: *const $type,
            classes: *const i64,
            gradient: *mut $type,
            mean: *mut f64,
            rows: usize,
            d: usize,
        ) -> i32 {
            // SAFETY: the caller's contract.
            code(unsafe { loss(handle, z, classes, gradient, mean, Shape { rows, d }) })
        }
    };
}

export!(f32, pxb_forward_f32, pxb_vjp_f32, pxb_vjp_with_parameter_f32, pxb_csr_f32, pxb_loss_f32);
export!(f64, pxb_forward_f64, pxb_vjp_f64, pxb_vjp_with_parameter_f64, pxb_csr_f64, pxb_loss_f64);

/// Attention with the weights of a mapping: `heads` heads of `n` queries and keys of one width.
///
/// # Safety
/// `handle` is alive; the arrays hold `heads · n · width` values; `out` overlaps none of the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_attention_f32(
    handle: &Handle,
    q: *const f32,
    k: *const f32,
    v: *const f32,
    out: *mut f32,
    heads: usize,
    n: usize,
    width: usize,
) -> i32 {
    let len = heads * n * width;
    let shape = parsimax::Shape { heads, queries: n, keys: n, key_width: width, value_width: width };
    let attention = Attention::new(&handle.mapping);
    let attention = if is_single_threaded() { attention.single_threaded() } else { attention };
    // SAFETY: the caller's contract.
    code(unsafe {
        let (q, k) = (std::slice::from_raw_parts(q, len), std::slice::from_raw_parts(k, len));
        let (v, out) = (std::slice::from_raw_parts(v, len), std::slice::from_raw_parts_mut(out, len));
        attention.forward(shape, q, k, v, out)
    })
}
