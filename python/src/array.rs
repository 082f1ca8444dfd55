//! Arrays that belong to Python: memory by address, seen through the core's views.
#![allow(unsafe_code, reason = "the one place where foreign memory becomes slices")]

use half::{bf16, f16};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use parsimax::{View, ViewMut};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::to_python;

/// The types that the core computes with, and the mask's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dtype {
    F16,
    Bf16,
    F32,
    F64,
    Bool,
}

impl Dtype {
    /// By the number that both sides of the binding use.
    pub(crate) fn from_code(code: u8) -> PyResult<Self> {
        Ok(match code {
            0 => Self::F16,
            1 => Self::Bf16,
            2 => Self::F32,
            3 => Self::F64,
            4 => Self::Bool,
            _ => return Err(PyTypeError::new_err(format!("unknown dtype code {code}"))),
        })
    }

    fn size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Bool => 1,
        }
    }
}

/// An element type and its [`Dtype`].
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// The dtype of `Self`.
    const DTYPE: Dtype;
}
impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;
}
impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}
impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Element for f64 {
    const DTYPE: Dtype = Dtype::F64;
}
impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;
}

/// An array in Python's memory. The caller keeps the owner alive and lets nobody else write to it
/// during the call.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    /// The lowest address of an element.
    low: usize,
    /// Elements from the lowest to the highest address.
    extent: usize,
    /// Elements from the lowest address to index (0, 0, …).
    offset: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    strides: Vec<isize>,
    writable: bool,
}

impl Array {
    fn new(
        address: usize,
        dtype: Dtype,
        shape: Vec<usize>,
        byte_strides: impl Iterator<Item = isize>,
        writable: bool,
    ) -> PyResult<Self> {
        let size = dtype.size();
        let byte_strides: Vec<isize> = byte_strides.collect();
        if !address.is_multiple_of(size)
            || byte_strides.iter().zip(&shape).any(|(s, n)| *n > 1 && s % size as isize != 0)
        {
            return Err(PyValueError::new_err("arrays must be aligned to their elements"));
        }
        let strides: Vec<isize> = byte_strides.iter().map(|s| s / size as isize).collect();
        if strides.len() != shape.len() {
            return Err(PyValueError::new_err("arrays need one stride per axis"));
        }
        let (mut below, mut above) = (0usize, 0usize);
        let empty = shape.contains(&0);
        for (n, s) in shape.iter().zip(&strides).filter(|_| !empty) {
            let span = (n - 1) * s.unsigned_abs();
            if *s < 0 { below += span } else { above += span }
        }
        let extent = if empty { 0 } else { below + above + 1 };
        Ok(Self { low: address - below * size, extent, offset: below, dtype, shape, strides, writable })
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn slice<T: Element>(&self) -> PyResult<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(PyTypeError::new_err(format!("arrays of one call must share a dtype, got {:?}", self.dtype)));
        }
        if self.extent == 0 {
            return Ok(&[]);
        }
        // SAFETY: `new` derived address and extent from an array that Python keeps alive for the
        // call, checked its alignment, and every bit pattern of T is valid (bool arrays hold 0 or 1).
        Ok(unsafe { std::slice::from_raw_parts(self.low as *const T, self.extent) })
    }

    /// The array, to read.
    pub(crate) fn view<T: Element>(&self) -> PyResult<View<'_, T>> {
        View::strided(self.slice()?, &self.shape, &self.strides, self.offset).map_err(to_python)
    }

    /// The elements of a contiguous array.
    pub(crate) fn packed<T: Element>(&self) -> PyResult<&[T]> {
        let mut expected = 1;
        let is_packed = self.shape.iter().zip(&self.strides).rev().all(|(n, s)| {
            let fits = *n == 1 || *s == expected;
            expected *= *n as isize;
            fits
        });
        if self.extent > 0 && !is_packed {
            return Err(PyValueError::new_err("arrays must be contiguous"));
        }
        self.slice()
    }

    /// The same, to write.
    pub(crate) fn packed_mut<T: Element>(&mut self, inputs: &[&Self]) -> PyResult<&mut [T]> {
        self.packed::<T>()?;
        self.slice_mut(inputs)
    }

    /// The array, to write; `inputs` are read during the same call and may not overlap it.
    pub(crate) fn view_mut<T: Element>(&mut self, inputs: &[&Self]) -> PyResult<ViewMut<'_, T>> {
        let (shape, strides, offset) = (self.shape.clone(), self.strides.clone(), self.offset);
        ViewMut::strided(self.slice_mut(inputs)?, &shape, &strides, offset).map_err(to_python)
    }

    fn slice_mut<T: Element>(&mut self, inputs: &[&Self]) -> PyResult<&mut [T]> {
        if !self.writable {
            return Err(PyValueError::new_err("out must be writable"));
        }
        if inputs.iter().any(|input| self.overlaps(input)) {
            return Err(PyValueError::new_err("out must not overlap an input"));
        }
        let (pointer, len) = (self.slice::<T>()?.as_ptr(), self.slice::<T>()?.len());
        // SAFETY: as in `slice`; the memory is writable and no other slice of this call covers it.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast_mut(), len) })
    }

    fn overlaps(&self, other: &Self) -> bool {
        let end = |a: &Self| a.low + a.extent * a.dtype.size();
        self.extent > 0 && other.extent > 0 && self.low < end(other) && other.low < end(self)
    }
}

/// NumPy arrays (`uint16` stands for the bits of bfloat16), or what `parsimax.torch` says of a
/// tensor: `(address, dtype code, shape, strides in elements)`.
impl<'py> FromPyObject<'_, 'py> for Array {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            let descr = array.dtype();
            let dtype = match (descr.kind(), descr.itemsize(), descr.is_native_byteorder()) {
                (b'f', 2, Some(true)) => Dtype::F16,
                (b'u', 2, Some(true)) => Dtype::Bf16,
                (b'f', 4, Some(true)) => Dtype::F32,
                (b'f', 8, Some(true)) => Dtype::F64,
                (b'b', 1, _) => Dtype::Bool,
                _ => return Err(PyTypeError::new_err(format!("unsupported dtype {descr}"))),
            };
            let pointer = array.as_array_ptr();
            // SAFETY: the pointer comes from a live NumPy array.
            let (data, flags) = unsafe { ((*pointer).fields.data, (*pointer).fields.flags) };
            let writable = flags & numpy::npyffi::flags::NPY_ARRAY_WRITEABLE != 0;
            return Self::new(data as usize, dtype, array.shape().to_vec(), array.strides().iter().copied(), writable);
        }
        let (address, code, shape, strides): (usize, u8, Vec<usize>, Vec<isize>) = object.extract()?;
        let dtype = Dtype::from_code(code)?;
        let size = dtype.size() as isize;
        Self::new(address, dtype, shape, strides.into_iter().map(|s| s * size), true)
    }
}

/// Scores and result of `forward_packed`: `len` elements at either address.
pub(crate) fn packed<'a, T: Element>(z: usize, out: usize, len: usize) -> PyResult<(&'a [T], &'a mut [T])> {
    let size = size_of::<T>();
    let apart = z + len * size <= out || out + len * size <= z;
    if z == 0 || out == 0 || !z.is_multiple_of(size) || !out.is_multiple_of(size) || !apart {
        return Err(PyValueError::new_err("arrays must be aligned and apart"));
    }
    // SAFETY: the caller holds two tensors of `len` elements for the call; they are aligned and do not
    // overlap, and every bit pattern of a floating-point T is valid.
    Ok(unsafe { (std::slice::from_raw_parts(z as *const T, len), std::slice::from_raw_parts_mut(out as *mut T, len)) })
}

/// Runs a generic call with the element type of a floating-point array.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::array::Dtype::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::array::Dtype::Bf16 => {
                type $T = half::bf16;
                $body
            }
            $crate::array::Dtype::F32 => {
                type $T = f32;
                $body
            }
            $crate::array::Dtype::F64 => {
                type $T = f64;
                $body
            }
            $crate::array::Dtype::Bool => Err(pyo3::exceptions::PyTypeError::new_err("scores must be floating-point")),
        }
    };
}
pub(crate) use with_float;
