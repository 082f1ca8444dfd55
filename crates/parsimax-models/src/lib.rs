//! Models whose probabilities can be exactly zero, and what that buys.
//!
//! [`seq2seq`] is a recurrent model with sparse attention and sparse output, trained by its Fenchel–Young loss.
//! [`inflection`] trains it on words, keeps what it learns, and takes it up again.
//! [`decode`] searches for the most probable sequence of any model that can say what comes next. With sparse
//! next-symbol distributions a search often ends with a proof: nothing was left out, so nothing better exists.

pub mod decode;
pub mod inflection;
pub mod seq2seq;
