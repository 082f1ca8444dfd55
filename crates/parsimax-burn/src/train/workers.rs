//! Parts of a batch on threads of their own.

use super::ops;
use crate::panics::fail;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads that each take a part of a batch through a model.
///
/// Each thread is a pool of its own, so that whatever the model does stays on its thread, and the
/// operations of one part do not wait for those of another.
#[derive(Debug)]
pub struct Workers {
    pools: Vec<ThreadPool>,
}

impl Workers {
    /// As many as asked for, at least one.
    ///
    /// # Panics
    /// If the system gives no threads.
    #[must_use]
    pub fn new(threads: usize) -> Workers {
        let pool = |_| {
            let built = ThreadPoolBuilder::new().num_threads(1).build();
            built.unwrap_or_else(|error| fail("workers", &format!("A thread could not be started: {error}.")))
        };
        Workers { pools: (0..threads.max(1)).map(pool).collect() }
    }

    /// How many parts a batch should have.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pools.len()
    }

    /// The sum of the losses of all parts, and the sum of their gradients.
    ///
    /// Losses are added, not averaged: a mean over the batch is a sum over a part divided by the size
    /// of the whole batch. Parts beyond the number of workers take turns. Sums run in the order of the
    /// parts, so that the same call gives the same bits.
    pub fn gradients<M, P>(
        &self,
        model: &M,
        parts: Vec<P>,
        device: &Device,
        loss: impl Fn(&M, P) -> Tensor<1> + Sync,
    ) -> (f64, GradientsParams)
    where
        M: Module + Clone + Send + Sync,
        P: Send,
    {
        let mut results: Vec<Option<(f64, GradientsParams)>> = parts.iter().map(|_| None).collect();
        let loss = &loss;
        std::thread::scope(|scope| {
            let mut queues: Vec<Vec<_>> = self.pools.iter().map(|_| Vec::new()).collect();
            for (i, job) in parts.into_iter().zip(&mut results).enumerate() {
                queues[i % self.pools.len()].push(job);
            }
            for (pool, queue) in self.pools.iter().zip(queues) {
                scope.spawn(move || {
                    pool.install(|| {
                        for (part, result) in queue {
                            *result = Some(one(model, part, device, loss));
                        }
                    });
                });
            }
        });
        let mut total = (0.0, None);
        for (value, gradients) in results.into_iter().flatten() {
            total = (total.0 + value, Some(sum(model, total.1, gradients)));
        }
        (total.0, total.1.unwrap_or_default())
    }
}

/// Loss and gradients of one part, on a copy of the model whose graph is its own.
fn one<M: Module + Clone, P>(
    model: &M,
    part: P,
    device: &Device,
    loss: impl Fn(&M, P) -> Tensor<1>,
) -> (f64, GradientsParams) {
    let own = model.clone().fork(device);
    let loss = loss(&own, part);
    let value = loss.clone().detach().into_scalar::<f32>();
    (f64::from(value), GradientsParams::from_grads(loss.backward(), &own))
}

/// Adds the gradients of each parameter.
fn sum<M: Module>(model: &M, total: Option<GradientsParams>, part: GradientsParams) -> GradientsParams {
    let Some(total) = total else { return part };
    let mut adder = Adder { total, part };
    model.visit(&mut adder);
    adder.total
}

struct Adder {
    total: GradientsParams,
    part: GradientsParams,
}

impl ModuleVisitor for Adder {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let pair = (self.total.remove::<D>(parameter.id), self.part.remove::<D>(parameter.id));
        let gradient = match pair {
            (Some(a), Some(b)) => ops::add(a, b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return,
        };
        self.total.register(parameter.id, gradient);
    }
}
