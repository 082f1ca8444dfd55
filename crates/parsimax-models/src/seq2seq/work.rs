//! Memory that passes use again and again.
//!
//! A pass needs dozens of large vectors. Asking the system for them each time costs a page fault every four kilobytes;
//! here they are kept, sorted by the next power of two.

use parsimax::kernel::matmul::Packed;

/// Vectors to be used again, and the working memory of products.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) scratch: Vec<f32>,
    /// The right factor of a product that is taken once.
    pub(super) right: Packed,
    /// By the logarithm of what they hold.
    free: Vec<Vec<Vec<f32>>>,
}

fn class(n: usize) -> usize {
    n.next_power_of_two().trailing_zeros() as usize
}

impl Work {
    /// A vector of `n` numbers, whatever they are.
    pub(super) fn take(&mut self, n: usize) -> Vec<f32> {
        let class = class(n);
        let kept = self.free.get_mut(class).and_then(Vec::pop);
        let mut vector = kept.unwrap_or_else(|| Vec::with_capacity(1 << class));
        vector.resize(n, 0.0);
        vector
    }

    /// A vector of `n` zeros.
    pub(super) fn zeros(&mut self, n: usize) -> Vec<f32> {
        let mut vector = self.take(n);
        vector.fill(0.0);
        vector
    }

    /// Keeps a vector for later.
    pub(super) fn give(&mut self, vector: Vec<f32>) {
        if vector.capacity() == 0 {
            return;
        }
        // What it holds for certain.
        let class = vector.capacity().ilog2() as usize;
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_used_again_and_zeros_are_zeros() {
        let mut work = Work::default();
        let mut first = work.take(100);
        first.fill(7.0);
        let place = first.as_ptr();
        work.give(first);
        let again = work.zeros(128);
        assert_eq!(again.as_ptr(), place);
        assert!(again.len() == 128 && again.iter().all(|x| *x == 0.0));
        let other = work.take(128);
        assert_ne!(other.as_ptr(), place);
    }
}
