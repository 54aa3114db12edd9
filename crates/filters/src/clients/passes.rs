//! Calls on single passes, from the control socket.

use crate::{Author, CallsRefused, Edits, HandCalls, HandEdit, HandError};
use fyke_control::{PassCall, Response};
use fyke_pass::{Operation, PassId};
use std::time::Instant;

/// Carries out the calls on the passes of a node, or on the only ones, as one edit; `None` if all passes are those of
/// texts.
pub(super) fn edit(
    filters: &dyn Edits,
    node: Option<&str>,
    calls: &[PassCall],
    author: Author,
    started: Instant,
) -> Option<Response> {
    let mut carry_all_out = |edit: &mut HandEdit<'_>| {
        let mut made = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            let called = carry_out(edit, call, &mut made);
            called.map_err(|message| CallsRefused::Call { place, message })?;
        }
        match calls.is_empty() {
            true => Err(CallsRefused::Whole("there is no call in the request".to_owned())),
            false => Ok(made),
        }
    };
    let count = calls.len() as u64;
    let edited = filters
        .edit_passes(node, &mut HandCalls { author, count, carry_out: &mut carry_all_out })?;
    Some(match edited {
        Ok((epoch, ids)) => {
            let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            Response::Ok { epoch, ids, latency_ns, notes: Vec::new() }
        }
        Err(CallsRefused::Call { place, message }) => Response::Refused { change: place, message },
        Err(CallsRefused::Whole(message)) => Response::Error { message },
    })
}

/// Carries out one call; `made` are the passes that those before it have made.
fn carry_out(edit: &mut HandEdit<'_>, call: &PassCall, made: &mut Vec<u64>) -> Result<(), String> {
    let named = |given: &Option<u64>| {
        let pass = given
            .or_else(|| made.last().copied())
            .ok_or_else(|| "no pass is named, and no call before this one has made one".to_owned());
        pass.map(PassId)
    };
    let text = |error: HandError| error.to_string();
    match call {
        PassCall::New {} => made.push(edit.add().map_err(text)?.0),
        PassCall::Dup { pass } => made.push(edit.duplicate(PassId(*pass)).map_err(text)?.0),
        PassCall::Del { pass } => edit.remove(PassId(*pass)).map_err(text)?,
        PassCall::Select { pass, index, op, mask } => {
            let pass = named(pass)?;
            let operation = operation(op)?;
            if mask.is_some() && !operation.takes_mask() {
                return Err(format!("{op} takes no mask"));
            }
            edit.select(pass, *index, operation, mask.unwrap_or(u32::MAX)).map_err(text)?;
        }
        PassCall::Add { pass, index, value } => {
            edit.add_operand(named(pass)?, *index, *value).map_err(text)?;
        }
        PassCall::Remove { pass, index, value } => {
            edit.remove_operand(named(pass)?, *index, *value).map_err(text)?;
        }
        PassCall::Poke { pass, index, word, value } => {
            edit.poke(named(pass)?, *index, *word, *value).map_err(text)?;
        }
    }
    Ok(())
}

/// The operation with this name.
fn operation(name: &str) -> Result<Operation, String> {
    Operation::named(name).ok_or_else(|| {
        let names: Vec<_> = Operation::ALL.iter().map(|(_, name)| *name).collect();
        format!("there is no operation {name:?}; expected one of: {}", names.join(", "))
    })
}
