//! What fyke is compared with and tried on: peers, traffic, networks, experiments.
#![deny(unsafe_code)]

pub mod peers;
