//! One row in, one row out: the short way to a mapping.

use crate::{Float, Mapping, Result, Rows, Support, View, ViewMut};

/// Convenience for a single row; batches, axes, masks and threads are [`Rows`].
pub trait MappingExt: Mapping + Sized {
    /// Π(z) of one row. `-inf` masks an entry; NaN and `+inf` are errors that name the index.
    fn apply<T: Float>(&self, z: &[T]) -> Result<Vec<T>> {
        let mut p = vec![T::default(); z.len()];
        let shape = [z.len()];
        Rows::new(self).forward(View::new(z, &shape)?, ViewMut::new(&mut p, &shape)?)?;
        Ok(p)
    }

    /// `Jᵀv` of one row at the scores `z`.
    fn vjp<T: Float>(&self, z: &[T], v: &[T]) -> Result<Vec<T>> {
        let (mut p, mut out) = (vec![T::default(); z.len()], vec![T::default(); z.len()]);
        let shape = [z.len()];
        let rows = Rows::new(self);
        rows.forward(View::new(z, &shape)?, ViewMut::new(&mut p, &shape)?)?;
        rows.vjp(
            View::new(z, &shape)?,
            View::new(&p, &shape)?,
            View::new(v, &shape)?,
            ViewMut::new(&mut out, &shape)?,
        )?;
        Ok(out)
    }

    /// The support of Π(z) and the probabilities on it.
    fn support<T: Float>(&self, z: &[T]) -> Result<Support> {
        let csr = Rows::new(self).csr(View::new(z, &[z.len()])?)?;
        Ok(Support { index: csr.indices, value: csr.values.into_iter().map(T::widen).collect() })
    }
}

impl<M: Mapping> MappingExt for M {}
