//! Attention with a learned α: the model finds out how sparse it wants to be.
//!
//! A query must read one of eight slots. With α near 1 (softmax) the other slots leak into the answer;
//! training drives α up, and most of them get exactly zero.
//!
//! Run: `cargo run --release -p parsimax-candle --example learn`

use candle_core::{Device, Result, Tensor, Var};
use parsimax_candle::Normalizer;

fn main() -> Result<()> {
    let device = Device::Cpu;
    let values = Tensor::randn(0f32, 1.0, (8, 4), &device)?;
    let scores = Var::from_tensor(
        &(Tensor::randn(0f32, 0.3, (8, 8), &device)? + Tensor::eye(8, candle_core::DType::F32, &device)?)?,
    )?;
    // α = 1 + σ(a), from 1.12 on.
    let raw = Var::new(&[[-2.0f32]], &device)?;
    let mapping = Normalizer::named("entmax")?;
    for step in 0..=300 {
        let alpha = ((raw.neg()?.exp()? + 1.0)?.recip()? + 1.0)?;
        let p = mapping.forward_with(&scores, &alpha, 1)?;
        let loss = (p.matmul(&values)? - &values)?.sqr()?.mean_all()?;
        if step % 100 == 0 {
            let zeros = p.eq(0f32)?.to_dtype(candle_core::DType::F32)?.mean_all()?.to_scalar::<f32>()?;
            let (loss, alpha) = (loss.to_scalar::<f32>()?, alpha.to_vec2::<f32>()?[0][0]);
            println!("step {step:3}: loss {loss:.4}, α {alpha:.3}, zeros {:.0}%", 100.0 * zeros);
        }
        let slopes = loss.backward()?;
        for var in [&scores, &raw] {
            let slope = slopes.get(var).expect("both were used");
            var.set(&(var.as_tensor() - (slope * 2.0)?)?)?;
        }
    }
    Ok(())
}
