//! Attention whose weights come from any mapping.

mod cache;
mod global;
mod multi_head;

pub use cache::KeyValueCache;
pub use global::{AttentionScore, GlobalAttention, GlobalAttentionConfig, GlobalKeys, InputFeeding, Weighting};
pub use multi_head::{Attended, AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};
