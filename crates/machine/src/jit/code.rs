//! The code generator: Cranelift makes machine code of a program. One block per operation, registers and scratch words
//! as variables. The memory of the code is freed with the [`Compiled`].

use super::{Answer, JitError};
use crate::bpf::SCRATCH_WORDS;
use crate::bpf::ancillary;
use crate::bpf::run::{Arithmetic, Operation, Program};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AbiParam, Block, InstBuilder, MemFlagsData, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_codegen::settings::Configurable;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use fyke_frame::Frame;

/// Result bit: the caller must look the scratch words up.
const MATCH: i64 = 1 << 32;
/// Result bit: the interpreter must run the program.
const BAIL: i64 = 1 << 33;

type Entry = unsafe extern "C" fn(*const u8, u64, u32, *mut u32) -> u64;

/// A translated program.
pub struct Compiled {
    entry: Entry,
    /// Owner of the code; taken out when it is freed.
    module: Option<JITModule>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: `entry` is the only pointer into this memory, it is private, and `self` is being dropped.
            unsafe { module.free_memory() };
        }
    }
}

impl Compiled {
    /// Translates a program.
    ///
    /// # Errors
    /// If it needs the interpreter, or this machine has no code generator.
    pub fn new(program: &Program) -> Result<Compiled, JitError> {
        if let Some(at) = program.operations().iter().position(needs_interpreter) {
            return Err(JitError::Interpreter { at });
        }
        let failed = |error: &dyn std::fmt::Display| JitError::Generator(error.to_string());
        let mut flags = cranelift_codegen::settings::builder();
        flags.set("opt_level", "speed").map_err(|error| failed(&error))?;
        flags.set("is_pic", "false").map_err(|error| failed(&error))?;
        let isa = cranelift_native::builder().map_err(|error| failed(&error))?;
        let isa = isa
            .finish(cranelift_codegen::settings::Flags::new(flags))
            .map_err(|error| failed(&error))?;
        let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        let mut context = module.make_context();
        let pointer = module.target_config().pointer_type();
        let signature = &mut context.func.signature;
        for kind in [pointer, types::I64, types::I32, pointer] {
            signature.params.push(AbiParam::new(kind));
        }
        signature.returns.push(AbiParam::new(types::I64));
        let mut builder_context = FunctionBuilderContext::new();
        let config = module.target_config();
        translate(program.operations(), &mut context.func, &mut builder_context, config);
        let function = module
            .declare_function("filter", Linkage::Export, &context.func.signature)
            .map_err(|error| failed(&error))?;
        module.define_function(function, &mut context).map_err(|error| failed(&error))?;
        module.finalize_definitions().map_err(|error| failed(&error))?;
        let code = module.get_finalized_function(function);
        // SAFETY: the code was generated for exactly this signature and calling convention, is complete, and lives
        // as long as `module`, which `Compiled` owns.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
        Ok(Compiled { entry, module: Some(module) })
    }

    /// Runs the program over a packet. For [`Answer::Match`] the keys are in `scratch`.
    #[inline]
    pub fn run(&self, frame: &Frame<'_>, scratch: &mut [u32; SCRATCH_WORDS]) -> Answer {
        let (data, len) = (frame.data.as_ptr(), frame.data.len() as u64);
        // SAFETY: the code reads `data` only below `len` (every load compares first, the property tests compare with
        // the interpreter), and writes at most the first 16 words at `scratch`.
        let result = unsafe { (self.entry)(data, len, frame.wire_len, scratch.as_mut_ptr()) };
        let bytes = result as u32;
        match (result >> 32) & 3 {
            0 => Answer::Bytes(bytes),
            1 => Answer::Match(bytes),
            _ => Answer::AskInterpreter,
        }
    }
}

fn needs_interpreter(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::LoadSpecial { .. }
            | Operation::LoadExtension(_)
            | Operation::ReturnData { .. }
            | Operation::JumpMatch { .. }
            | Operation::Register { .. }
            | Operation::Postpone(_)
    )
}

struct Translator<'a, 'b> {
    builder: &'a mut FunctionBuilder<'b>,
    blocks: Vec<Block>,
    reject: Block,
    bail: Block,
    a: Variable,
    x: Variable,
    scratch: [Variable; SCRATCH_WORDS],
    data: Value,
    len: Value,
    wire_len: Value,
    out: Value,
}

fn translate(
    operations: &[Operation],
    function: &mut ir::Function,
    context: &mut FunctionBuilderContext,
    config: TargetFrontendConfig,
) {
    let mut builder = FunctionBuilder::new(function, context);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let parameters: Vec<Value> = builder.block_params(entry).to_vec();
    let zero = builder.ins().iconst(types::I32, 0);
    let mut variable = || {
        let variable = builder.declare_var(types::I32);
        builder.def_var(variable, zero);
        variable
    };
    let (a, x) = (variable(), variable());
    let scratch = std::array::from_fn(|_| variable());
    let blocks: Vec<Block> = operations.iter().map(|_| builder.create_block()).collect();
    let (reject, bail) = (builder.create_block(), builder.create_block());
    match blocks.first() {
        Some(&first) => builder.ins().jump(first, &[]),
        None => builder.ins().jump(reject, &[]),
    };
    let mut translator = Translator {
        builder: &mut builder,
        blocks,
        reject,
        bail,
        a,
        x,
        scratch,
        data: parameters[0],
        len: parameters[1],
        wire_len: parameters[2],
        out: parameters[3],
    };
    for (at, operation) in operations.iter().enumerate() {
        translator.operation(at, operation);
    }
    for (block, result) in [(reject, 0), (bail, BAIL)] {
        builder.switch_to_block(block);
        let result = builder.ins().iconst(types::I64, result);
        builder.ins().return_(&[result]);
    }
    builder.seal_all_blocks();
    builder.finalize(config);
}

impl Translator<'_, '_> {
    /// The block of an operation; control past the last operation rejects.
    fn block(&self, at: usize) -> Block {
        self.blocks.get(at).copied().unwrap_or(self.reject)
    }

    fn constant(&mut self, value: u32) -> Value {
        self.builder.ins().iconst(types::I32, i64::from(value))
    }

    fn go_on(&mut self, at: usize) {
        let next = self.block(at + 1);
        self.builder.ins().jump(next, &[]);
    }

    fn set_a(&mut self, value: Value, at: usize) {
        self.builder.def_var(self.a, value);
        self.go_on(at);
    }

    fn set_x(&mut self, value: Value, at: usize) {
        self.builder.def_var(self.x, value);
        self.go_on(at);
    }

    #[allow(clippy::too_many_lines, reason = "one arm an instruction, as in the interpreter")]
    fn operation(&mut self, at: usize, operation: &Operation) {
        use Operation as O;
        let block = self.block(at);
        self.builder.switch_to_block(block);
        let a = self.builder.use_var(self.a);
        let x = self.builder.use_var(self.x);
        match *operation {
            O::LoadImmediate(k) => {
                let value = self.constant(k);
                self.set_a(value, at);
            }
            O::LoadWord(k) => self.load_at(k, 4, at),
            O::LoadHalf(k) => self.load_at(k, 2, at),
            O::LoadByte(k) => self.load_at(k, 1, at),
            O::LoadWordAt(k) => self.load_indexed(k, 4, at),
            O::LoadHalfAt(k) => self.load_indexed(k, 2, at),
            O::LoadByteAt(k) => self.load_indexed(k, 1, at),
            O::LoadLength => self.set_a(self.wire_len, at),
            O::LoadScratch(k) => {
                let value = self.builder.use_var(self.word(k));
                self.set_a(value, at);
            }
            O::IndexImmediate(k) => {
                let value = self.constant(k);
                self.set_x(value, at);
            }
            O::IndexLength => self.set_x(self.wire_len, at),
            O::IndexScratch(k) => {
                let value = self.builder.use_var(self.word(k));
                self.set_x(value, at);
            }
            O::IndexHeader(k) => {
                let offset = self.builder.ins().iconst(types::I64, i64::from(k));
                let byte = self.load(offset, 1);
                let low = self.builder.ins().band_imm_u(byte, 0xf);
                let value = self.builder.ins().ishl_imm_u(low, 2);
                self.set_x(value, at);
            }
            O::Store(k) => {
                self.builder.def_var(self.word(k), a);
                self.go_on(at);
            }
            O::StoreIndex(k) => {
                self.builder.def_var(self.word(k), x);
                self.go_on(at);
            }
            O::WithImmediate(operation, k) => {
                let k = self.constant(k);
                self.arithmetic(operation, a, k, at);
            }
            O::WithIndex(operation) => self.arithmetic(operation, a, x, at),
            O::Negate => {
                let value = self.builder.ins().ineg(a);
                self.set_a(value, at);
            }
            O::Jump(target) => {
                let target = self.block(target.into());
                self.builder.ins().jump(target, &[]);
            }
            O::Equal { k, on_true, on_false } => {
                self.test(IntCC::Equal, Some(k), on_true, on_false);
            }
            O::Greater { k, on_true, on_false } => {
                self.test(IntCC::UnsignedGreaterThan, Some(k), on_true, on_false);
            }
            O::GreaterEqual { k, on_true, on_false } => {
                self.test(IntCC::UnsignedGreaterThanOrEqual, Some(k), on_true, on_false);
            }
            O::EqualIndex { on_true, on_false } => self.test(IntCC::Equal, None, on_true, on_false),
            O::GreaterIndex { on_true, on_false } => {
                self.test(IntCC::UnsignedGreaterThan, None, on_true, on_false);
            }
            O::GreaterEqualIndex { on_true, on_false } => {
                self.test(IntCC::UnsignedGreaterThanOrEqual, None, on_true, on_false);
            }
            O::AnyBit { k, on_true, on_false } => {
                let k = self.constant(k);
                let bits = self.builder.ins().band(a, k);
                self.choose(bits, on_true, on_false);
            }
            O::AnyBitIndex { on_true, on_false } => {
                let bits = self.builder.ins().band(a, x);
                self.choose(bits, on_true, on_false);
            }
            O::Return(k) => {
                let result = self.builder.ins().iconst(types::I64, i64::from(k));
                self.builder.ins().return_(&[result]);
            }
            O::ReturnA => {
                let result = self.builder.ins().uextend(types::I64, a);
                self.builder.ins().return_(&[result]);
            }
            O::ToIndex => self.set_x(a, at),
            O::FromIndex => self.set_a(x, at),
            O::ReturnMatch { count, bytes } => {
                for word in 0..count {
                    let value = self.builder.use_var(self.word(word));
                    let place = i32::from(word) * 4;
                    self.builder.ins().store(MemFlagsData::trusted(), value, self.out, place);
                }
                let result = self.builder.ins().iconst(types::I64, i64::from(bytes) | MATCH);
                self.builder.ins().return_(&[result]);
            }
            O::Nothing => self.go_on(at),
            // Programs with these are refused earlier; rejection is the safe answer.
            O::LoadSpecial { .. }
            | O::LoadExtension(_)
            | O::ReturnData { .. }
            | O::JumpMatch { .. }
            | O::Register { .. }
            | O::Postpone(_) => {
                self.builder.ins().jump(self.bail, &[]);
            }
        }
    }

    fn word(&self, k: u8) -> Variable {
        self.scratch[usize::from(k) % SCRATCH_WORDS]
    }

    fn choose(&mut self, test: Value, on_true: u16, on_false: u16) {
        let (on_true, on_false) = (self.block(on_true.into()), self.block(on_false.into()));
        self.builder.ins().brif(test, on_true, &[], on_false, &[]);
    }

    fn test(&mut self, condition: IntCC, k: Option<u32>, on_true: u16, on_false: u16) {
        let a = self.builder.use_var(self.a);
        let other = match k {
            Some(k) => self.constant(k),
            None => self.builder.use_var(self.x),
        };
        let holds = self.builder.ins().icmp(condition, a, other);
        self.choose(holds, on_true, on_false);
    }

    /// Loads `width` bytes at a 64-bit offset below 2^33; a load outside the packet rejects.
    fn load(&mut self, offset: Value, width: u8) -> Value {
        let end = self.builder.ins().iadd_imm_u(offset, i64::from(width));
        let inside = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, self.len);
        let next = self.builder.create_block();
        self.builder.ins().brif(inside, next, &[], self.reject, &[]);
        self.builder.switch_to_block(next);
        let address = self.builder.ins().iadd(self.data, offset);
        let flags = MemFlagsData::new().with_notrap();
        let kind = match width {
            4 => types::I32,
            2 => types::I16,
            _ => types::I8,
        };
        let raw = self.builder.ins().load(kind, flags, address, 0);
        match width {
            4 => self.builder.ins().bswap(raw),
            2 => {
                let swapped = self.builder.ins().bswap(raw);
                self.builder.ins().uextend(types::I32, swapped)
            }
            _ => self.builder.ins().uextend(types::I32, raw),
        }
    }

    fn load_at(&mut self, k: u32, width: u8, at: usize) {
        let offset = self.builder.ins().iconst(types::I64, i64::from(k));
        let value = self.load(offset, width);
        self.set_a(value, at);
    }

    fn load_indexed(&mut self, k: u32, width: u8, at: usize) {
        let x = self.builder.use_var(self.x);
        let k = self.constant(k);
        let sum = self.builder.ins().iadd(x, k);
        let limit = self.constant(ancillary::LINK);
        let special = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, sum, limit);
        let next = self.builder.create_block();
        self.builder.ins().brif(special, self.bail, &[], next, &[]);
        self.builder.switch_to_block(next);
        let offset = self.builder.ins().uextend(types::I64, sum);
        let value = self.load(offset, width);
        self.set_a(value, at);
    }

    fn arithmetic(&mut self, operation: Arithmetic, a: Value, b: Value, at: usize) {
        use Arithmetic as A;
        if matches!(operation, A::Div | A::Mod) {
            let next = self.builder.create_block();
            self.builder.ins().brif(b, next, &[], self.reject, &[]);
            self.builder.switch_to_block(next);
        }
        let value = match operation {
            A::Add => self.builder.ins().iadd(a, b),
            A::Sub => self.builder.ins().isub(a, b),
            A::Mul => self.builder.ins().imul(a, b),
            A::Div => self.builder.ins().udiv(a, b),
            A::Mod => self.builder.ins().urem(a, b),
            A::Or => self.builder.ins().bor(a, b),
            A::And => self.builder.ins().band(a, b),
            A::Xor => self.builder.ins().bxor(a, b),
            A::Lsh | A::Rsh => {
                let shifted = match operation {
                    A::Lsh => self.builder.ins().ishl(a, b),
                    _ => self.builder.ins().ushr(a, b),
                };
                let width = self.constant(32);
                let zero = self.constant(0);
                let fits = self.builder.ins().icmp(IntCC::UnsignedLessThan, b, width);
                self.builder.ins().select(fits, shifted, zero)
            }
        };
        self.set_a(value, at);
    }
}
