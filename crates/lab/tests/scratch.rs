#![allow(dead_code, unused_imports, missing_docs)]
use fyke_lab::{ftp, background, net};
#[path="."] mod demo {
 #[path="../src/demo/tally.rs"] pub mod tally;
 #[path="../src/demo/latency.rs"] pub mod latency;
 #[path="../src/demo/expression.rs"] pub mod expression;
 #[path="../src/demo/recording.rs"] pub mod recording;
 #[path="../src/demo/side.rs"] pub mod side;
 #[path="../src/demo/synthetic.rs"] pub mod synthetic;
}
