//! Calls on single passes: the seven editing calls of the papers' libraries, as parts of a
//! [`Request::Passes`](super::Request::Passes).
//!
//! A pass is named by its id ([`Request::Show`](super::Request::Show)); without one, it is the pass that the last
//! `new` or `dup` of the same request has made. So a whole pass can be made by one edit, and no frame is evaluated
//! under half of it.

use serde::{Deserialize, Serialize};

/// A call on a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum PassCall {
    /// Adds a pass without instructions, which accepts every frame (`SPF_NewPass`).
    New {},
    /// Deletes a pass (`SPF_DelPass`).
    Del {
        /// The pass.
        pass: u64,
    },
    /// Copies a pass, also one of a filter text (`SPF_DupPass`).
    Dup {
        /// The pass that is copied.
        pass: u64,
    },
    /// Sets an instruction to a predefined operation without parameters (`SPF_SelectOp`).
    Select {
        /// The pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pass: Option<u64>,
        /// The instruction, from 0; the number of instructions appends.
        index: usize,
        /// Name of the operation: `true`, `never`, `ether_ip`, `ether_ip6`, `ether_arp`, `ether_ip_tcp_nonfrag`,
        /// `ether_ip_udp_nonfrag`, `ip_src`, `ip_dst`, `ip_host`, `port_src`, `port_dst`, `port`, `ether_type`.
        op: String,
        /// Mask of an operation on addresses; without it, all bits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<u32>,
    },
    /// Adds a parameter: an alternative that the instruction compares with (`SPF_AddParam`).
    Add {
        /// The pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pass: Option<u64>,
        /// The instruction.
        index: usize,
        /// The value; an address as a number.
        value: u32,
    },
    /// Removes a parameter (`SPF_DelParam`).
    Remove {
        /// The pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pass: Option<u64>,
        /// The instruction.
        index: usize,
        /// The value.
        value: u32,
    },
    /// Overwrites a word of an instruction; the result must be a valid instruction (`SPF_PokeInst`).
    Poke {
        /// The pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pass: Option<u64>,
        /// The instruction.
        index: usize,
        /// The word: 0 is the command, 1 to 7 are parameters.
        word: usize,
        /// Its value.
        value: u32,
    },
}
