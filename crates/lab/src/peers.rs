//! Other people's engines, loaded at run time where they are installed and never linked.

<<<<<<< HEAD
=======
#[allow(unsafe_code, reason = "calls of C libraries")]
>>>>>>> main
pub mod libpcap;
