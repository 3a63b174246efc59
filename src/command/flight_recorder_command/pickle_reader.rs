//! Reads pickles that hold plain data, as PyTorch's C++ pickler and Python's protocols 2 to 5 write them.
//!
//! A pickle is a program for a stack machine, and may name Python functions to call. This reader knows the operations
//! of data alone: whatever names a function or a class is an error, and nothing is ever called. A reference to an
//! earlier value stays a reference, so that a small file cannot describe a large value.

use std::collections::HashMap;

use super::data_arena::{ArenaFull, DataArena, DataValue, MAX_VALUES, ValueId};

/// Why a pickle cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    /// It ends too early.
    #[error("it ends after {0} bytes, in the middle of a value; copy it again")]
    Truncated(usize),
    /// It names Python code.
    #[error("byte {0} names a Python function or class; gaunt reads plain data only")]
    Code(usize),
    /// An operation is unknown.
    #[error("byte {at} is the unknown operation {opcode:#04x}; dump it again")]
    Opcode {
        /// The operation.
        opcode: u8,
        /// Where it is.
        at: usize,
    },
    /// An operation finds other values than it needs.
    #[error("the operation at byte {0} lacks its values; dump it again")]
    Operand(usize),
    /// It holds too many values.
    #[error("it holds more than {MAX_VALUES} values; dump fewer operations (TORCH_FR_BUFFER_SIZE)")]
    TooMany,
}

impl From<ArenaFull> for PickleError {
    fn from(_: ArenaFull) -> Self {
        Self::TooMany
    }
}

/// Reads a pickle: the table of its values and the outermost one.
pub(super) fn read_pickle(bytes: &[u8]) -> Result<(DataArena, ValueId), PickleError> {
    let mut machine = PickleMachine {
        bytes,
        at: 0,
        operation_at: 0,
        arena: DataArena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    loop {
        machine.operation_at = machine.at;
        let [opcode] = machine.read_array()?;
        if opcode == b'.' {
            let root = machine.pop_value()?;
            return Ok((machine.arena, root));
        }
        machine.run_operation(opcode)?;
    }
}

struct PickleMachine<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the present operation begins, for errors.
    operation_at: usize,
    arena: DataArena,
    stack: Vec<ValueId>,
    /// The heights of the stack at which a mark lies.
    marks: Vec<usize>,
    memo: HashMap<u32, ValueId>,
}

impl PickleMachine<'_> {
    fn run_operation(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            // Protocol number and frame length only help a reader that streams.
            0x80 => self.read_array::<1>().map(drop),
            0x95 => self.read_array::<8>().map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop_value().map(drop),
            b'q' | b'r' | 0x94 => self.store_memo(opcode),
            b'h' | b'j' => self.load_memo(opcode),
            // A tuple and a list.
            b')' | b']' => self.push_value(DataValue::List(Vec::new())),
            0x85..=0x87 => self.push_tuple(usize::from(opcode - 0x84)),
            b't' => {
                let items = self.pop_marked()?;
                self.push_value(DataValue::List(items))
            }
            b'a' => {
                let item = self.pop_value()?;
                self.extend_list(&[item])
            }
            b'e' => {
                let items = self.pop_marked()?;
                self.extend_list(&items)
            }
            b'}' => self.push_value(DataValue::Dict(Vec::new())),
            b's' => {
                let (value, key) = (self.pop_value()?, self.pop_value()?);
                self.extend_dict(&[key, value])
            }
            b'u' => {
                let items = self.pop_marked()?;
                self.extend_dict(&items)
            }
            // GLOBAL, INST, OBJ, REDUCE, BUILD, NEWOBJ(_EX), STACK_GLOBAL, extensions and persistent ids.
            b'c' | b'i' | b'o' | b'R' | b'b' | 0x81 | 0x92 | 0x93 | 0x82..=0x84 | b'P' | b'Q' => {
                Err(PickleError::Code(self.operation_at))
            }
            _ => self.push_scalar(opcode),
        }
    }

    fn push_scalar(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            b'N' => DataValue::Nothing,
            0x88 => DataValue::Bool(true),
            0x89 => DataValue::Bool(false),
            b'J' => DataValue::Int(i64::from(i32::from_le_bytes(self.read_array()?))),
            b'K' => DataValue::Int(i64::from(u8::from_le_bytes(self.read_array()?))),
            b'M' => DataValue::Int(i64::from(u16::from_le_bytes(self.read_array()?))),
            0x8a => self.read_long()?,
            b'G' => DataValue::Float(f64::from_be_bytes(self.read_array()?)),
            0x8c => {
                let length = usize::from(u8::from_le_bytes(self.read_array()?));
                self.read_text(length)?
            }
            b'X' => {
                let length = u32::from_le_bytes(self.read_array()?) as usize;
                self.read_text(length)?
            }
            0x8d => {
                let length = u64::from_le_bytes(self.read_array()?);
                self.read_text(usize::try_from(length).unwrap_or(usize::MAX))?
            }
            _ => return Err(PickleError::Opcode { opcode, at: self.operation_at }),
        };
        self.push_value(value)
    }

    fn push_value(&mut self, value: DataValue) -> Result<(), PickleError> {
        let id = self.arena.add_value(value)?;
        self.stack.push(id);
        Ok(())
    }

    fn push_tuple(&mut self, length: usize) -> Result<(), PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(length).filter(|start| *start >= floor);
        let items = self.stack.split_off(start.ok_or(PickleError::Operand(self.operation_at))?);
        self.push_value(DataValue::List(items))
    }

    /// Takes the top value; a mark is none.
    fn pop_value(&mut self) -> Result<ValueId, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = if self.stack.len() > floor { self.stack.pop() } else { None };
        top.ok_or(PickleError::Operand(self.operation_at))
    }

    /// Takes the values above the last mark, and the mark.
    fn pop_marked(&mut self) -> Result<Vec<ValueId>, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Operand(self.operation_at))?;
        Ok(self.stack.split_off(mark))
    }

    fn extend_list(&mut self, items: &[ValueId]) -> Result<(), PickleError> {
        let top = self.stack.last().and_then(|id| self.arena.value_mut(*id));
        let Some(DataValue::List(list)) = top else {
            return Err(PickleError::Operand(self.operation_at));
        };
        list.extend_from_slice(items);
        Ok(())
    }

    fn extend_dict(&mut self, items: &[ValueId]) -> Result<(), PickleError> {
        let top = self.stack.last().and_then(|id| self.arena.value_mut(*id));
        let (Some(DataValue::Dict(dict)), true) = (top, items.len().is_multiple_of(2)) else {
            return Err(PickleError::Operand(self.operation_at));
        };
        dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    /// Gives the top value a number.
    fn store_memo(&mut self, opcode: u8) -> Result<(), PickleError> {
        let number = match opcode {
            b'q' => u32::from(u8::from_le_bytes(self.read_array()?)),
            b'r' => u32::from_le_bytes(self.read_array()?),
            _ => self.memo.len() as u32,
        };
        let top = self.stack.last().ok_or(PickleError::Operand(self.operation_at))?;
        self.memo.insert(number, *top);
        Ok(())
    }

    fn load_memo(&mut self, opcode: u8) -> Result<(), PickleError> {
        let number = match opcode {
            b'h' => u32::from(u8::from_le_bytes(self.read_array()?)),
            _ => u32::from_le_bytes(self.read_array()?),
        };
        let id = self.memo.get(&number).ok_or(PickleError::Operand(self.operation_at))?;
        self.stack.push(*id);
        Ok(())
    }

    /// Reads a whole number of at most 8 bytes, as a clock in nanoseconds has.
    fn read_long(&mut self) -> Result<DataValue, PickleError> {
        let [length] = self.read_array()?;
        let bytes = self.read_bytes(usize::from(length))?;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut number = [if is_negative { 0xff } else { 0 }; 8];
        match number.get_mut(..bytes.len()) {
            Some(low) => low.copy_from_slice(bytes),
            None => return Err(PickleError::Operand(self.operation_at)),
        }
        Ok(DataValue::Int(i64::from_le_bytes(number)))
    }

    fn read_text(&mut self, length: usize) -> Result<DataValue, PickleError> {
        let bytes = self.read_bytes(length)?;
        Ok(DataValue::Text(String::from_utf8_lossy(bytes).into()))
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let bytes = self.read_bytes(N)?;
        bytes.try_into().map_err(|_| PickleError::Truncated(self.bytes.len()))
    }
}

impl<'a> PickleMachine<'a> {
    fn read_bytes(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or(PickleError::Truncated(self.bytes.len()))?;
        self.at += length;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value looks like, with references followed; for small values only.
    fn render(arena: &DataArena, id: ValueId) -> String {
        match arena.value_of(id) {
            DataValue::List(items) => {
                let items: Vec<_> = items.iter().map(|id| render(arena, *id)).collect();
                format!("[{}]", items.join(", "))
            }
            DataValue::Dict(pairs) => {
                let pairs = pairs.iter();
                let pairs =
                    pairs.map(|(key, value)| render(arena, *key) + ": " + &render(arena, *value));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            other => format!("{other:?}"),
        }
    }

    fn render_pickle(bytes: &[u8]) -> Result<String, PickleError> {
        read_pickle(bytes).map(|(arena, root)| render(&arena, root))
    }

    #[test]
    fn data_of_python_and_of_torch_is_read() {
        // pickle.dumps({"a": [1, -2, 300, 2**40, 0.5, None, True], "b": ("x", "x")}, 2)
        let protocol_2 = b"\x80\x02}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01\
            \x8a\x06\0\0\0\0\0\x01G?\xe0\0\0\0\0\0\0N\x88eX\x01\0\0\0bq\x03X\x01\0\0\0xq\x04h\x04\
            \x86q\x05u.";
        let expected = "{Text(\"a\"): [Int(1), Int(-2), Int(300), Int(1099511627776), Float(0.5), \
            Nothing, Bool(true)], Text(\"b\"): [Text(\"x\"), Text(\"x\")]}";
        assert_eq!(render_pickle(protocol_2).unwrap(), expected);
        // pickle.dumps(["ä", {}], 4): with a frame, and numbered by MEMOIZE.
        let protocol_4 = b"\x80\x04\x95\x0c\0\0\0\0\0\0\0]\x94(\x8c\x02\xc3\xa4\x94}\x94e.";
        assert_eq!(render_pickle(protocol_4).unwrap(), "[Text(\"ä\"), {}]");
    }

    #[test]
    fn python_code_is_refused_wherever_it_stands() {
        // os.system("true"), in the protocols 2 and 4.
        for (pickle, at) in [
            (&b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."[..], 2),
            (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", 14),
            (b"\x80\x02]N\x81.", 4),
        ] {
            assert_eq!(render_pickle(pickle), Err(PickleError::Code(at)));
        }
    }

    #[test]
    fn references_to_references_take_no_space() {
        // Each list holds the one before it twice: written out, 2^200 values.
        let mut pickle = b"\x80\x02]q\0".to_vec();
        for level in 0..200_u8 {
            pickle.extend([b'h', level, b'h', level, 0x86, b'q', level + 1]);
        }
        pickle.push(b'.');
        let (arena, root) = read_pickle(&pickle).unwrap();
        assert_eq!(arena.list_of(root).map(<[_]>::len), Some(2));
        // A list that holds itself.
        let (arena, root) = read_pickle(b"\x80\x02]q\0h\0a.").unwrap();
        assert_eq!(arena.list_of(root), Some(&[root][..]));
    }

    #[test]
    fn broken_pickle_is_an_error_at_every_byte() {
        let pickle = b"\x80\x02}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01M,\x01eu.";
        for end in 0..pickle.len() {
            assert!(render_pickle(&pickle[..end]).is_err(), "{end} bytes");
        }
        for at in 0..pickle.len() {
            for byte in 0..=u8::MAX {
                let mut changed = pickle.to_vec();
                changed[at] = byte;
                // It may still be data; it must not panic.
                drop(read_pickle(&changed));
            }
        }
        assert_eq!(render_pickle(b"\x80\x02(0."), Err(PickleError::Operand(3)));
        assert_eq!(render_pickle(b"\x80\x02K\x01a."), Err(PickleError::Operand(4)));
        assert_eq!(render_pickle(b"\x80\x02h\x07."), Err(PickleError::Operand(2)));
        let unknown = PickleError::Opcode { opcode: 0xff, at: 2 };
        assert_eq!(render_pickle(b"\x80\x02\xff."), Err(unknown));
        let too_many = [&b"\x80\x02"[..], &vec![b'N'; MAX_VALUES + 1], b"."].concat();
        assert_eq!(render_pickle(&too_many), Err(PickleError::TooMany));
    }
}
