//! Safetensors files: opened without believing them, widened to f32, and written.

use crate::error::{Error, Result};
use crate::file::{read_limited, regular};
use crate::hf::Entry;
use crate::run::is_plain;
use memmap2::Mmap;
use safetensors::tensor::{TensorView, View};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The weights of a checkpoint in one file.
pub(crate) const MODEL: &str = "model.safetensors";
/// Which of several files holds which tensor.
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of the number that states the header's length.
const LENGTH: u64 = 8;
/// A model of 1024 layers needs half of this. A header costs up to 30 times its size in memory while it is parsed.
const MOST_HEADER: u64 = 4 << 20;
/// An index has one line per tensor.
const MOST_INDEX: u64 = 10 << 20;
/// What pickles begin with: a zip archive (torch.save since 1.6), or a pickle of protocol 2 to 5.
const PICKLES: [&[u8]; 5] = [b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];
/// How PyTorch's own files are called.
const PICKLE_NAMES: [&str; 3] = ["bin", "pt", "pth"];

/// Fails when a file is a pickle by its first bytes, whatever its name.
pub(crate) fn refuse_pickle(path: &Path) -> Result<()> {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LENGTH).read_to_end(&mut first));
    read.map_err(Error::io(path, "read the file"))?;
    // arrays of NumPy are a zip archive, too, and run nothing
    let arrays = path.extension().is_some_and(|extension| extension == "npz");
    // the length of a safetensors header can begin the same way (640 is 0x0280), but no pickle reads as a small one
    let header = first.first_chunk().is_some_and(|length| u64::from_le_bytes(*length) <= MOST_HEADER);
    if !header && !arrays && PICKLES.iter().any(|magic| first.starts_with(magic)) {
        return Err(Error::Pickle { path: path.to_path_buf() });
    }
    Ok(())
}

/// An open safetensors file.
pub(crate) struct TensorFile {
    path: PathBuf,
    bytes: Mmap,
}

impl TensorFile {
    /// Opens a file after comparing the header length that it states with its real size.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let bytes = regular(path)?;
        refuse_pickle(path)?;
        let file = File::open(path).map_err(Error::io(path, "open the file"))?;
        let mut length = [0; LENGTH as usize];
        let wrong = |header: u64, expected: String| {
            Err(Error::Header { path: path.to_path_buf(), header, bytes, expected })
        };
        if bytes < LENGTH {
            return wrong(0, format!("a safetensors file has at least {LENGTH} bytes"));
        }
        (&file).read_exact(&mut length).map_err(Error::io(path, "read the file"))?;
        let header = u64::from_le_bytes(length);
        if header > bytes - LENGTH {
            return wrong(header, "it was cut short, or is no safetensors file".into());
        }
        if header > MOST_HEADER {
            return wrong(header, format!("softdict reads headers of at most {MOST_HEADER} bytes"));
        }
        #[expect(unsafe_code, reason = "weights are mapped, not read")]
        // SAFETY: the map is read as plain bytes, for which every value is valid. It lives no longer than this struct.
        // No writer of ours changes a file in place: they write a new one and rename it.
        let map = unsafe { Mmap::map(&file) };
        Ok(Self { path: path.to_path_buf(), bytes: map.map_err(Error::io(path, "map the file"))? })
    }

    fn invalid(&self) -> impl FnOnce(SafeTensorError) -> Error + '_ {
        |source| Error::Safetensors { path: self.path.clone(), source }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All tensors by name.
    pub(crate) fn tensors(&self) -> Result<BTreeMap<String, Found<'_>>> {
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(self.invalid())?;
        Ok(tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| (name, Found { path: &self.path, view }))
            .collect())
    }

    /// One entry of the header's free text.
    pub(crate) fn metadata(&self, key: &str) -> Result<Option<String>> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).map_err(self.invalid())?;
        Ok(metadata.metadata().as_ref().and_then(|free| free.get(key).cloned()))
    }
}

/// A tensor, and the file that holds it.
pub(crate) struct Found<'a> {
    pub(crate) path: &'a Path,
    view: TensorView<'a>,
}

impl Found<'_> {
    /// Fails unless the tensor has this shape and a type that is read.
    pub(crate) fn check(&self, name: &str, expected: &[usize]) -> Result<()> {
        let place = || (self.path.to_path_buf(), name.to_owned());
        if !matches!(self.view.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            let (path, tensor) = place();
            return Err(Error::Type { path, tensor, dtype: self.view.dtype().to_string() });
        }
        let found = self.view.shape();
        if found != expected {
            let (path, tensor) = place();
            return Err(Error::Shape { path, tensor, found: found.to_vec(), expected: expected.to_vec() });
        }
        Ok(())
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> &[usize] {
        self.view.shape()
    }

    /// Its values, widened to f32.
    pub(crate) fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.check(name, self.view.shape())?;
        let halves = self.view.data().as_chunks().0.iter();
        Ok(match self.view.dtype() {
            Dtype::F16 => halves.map(|&bytes| widen_f16(bytes)).collect(),
            Dtype::BF16 => halves.map(|&bytes| widen_bf16(bytes)).collect(),
            _ => self.view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        })
    }

    /// Writes its values, all of them finite, where `entry` says.
    pub(crate) fn scatter(&self, entry: &Entry, parameters: &mut [f32]) -> Result<()> {
        self.check(&entry.name, &entry.shape())?;
        let data = self.view.data();
        let written = match self.view.dtype() {
            Dtype::F16 => entry.scatter(data.as_chunks().0, widen_f16, parameters),
            Dtype::BF16 => entry.scatter(data.as_chunks().0, widen_bf16, parameters),
            _ => entry.scatter(data.as_chunks().0, f32::from_le_bytes, parameters),
        };
        self.require_finite(&entry.name, written)
    }

    /// Its values, all of them finite.
    pub(crate) fn finite(&self, name: &str) -> Result<Vec<f32>> {
        let values = self.floats(name)?;
        self.require_finite(name, &values)?;
        Ok(values)
    }

    fn require_finite(&self, name: &str, values: &[f32]) -> Result<()> {
        // the largest as bits, which needs no branch for each value
        let largest = values.iter().fold(0, |largest, value| value.abs().to_bits().max(largest));
        if f32::from_bits(largest).is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { path: self.path.to_path_buf(), tensor: name.to_owned() })
    }
}

fn widen_f16(bytes: [u8; 2]) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}

fn widen_bf16(bytes: [u8; 2]) -> f32 {
    half::bf16::from_le_bytes(bytes).to_f32()
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The files that hold the weights of a checkpoint: `model.safetensors`, or the files that its index names.
pub(crate) fn open_weights(folder: &Path) -> Result<Vec<TensorFile>> {
    let single = folder.join(MODEL);
    if single.exists() {
        return Ok(vec![TensorFile::open(&single)?]);
    }
    let path = folder.join(INDEX);
    if path.exists() {
        let index: Index =
            serde_json::from_slice(&read_limited(&path, MOST_INDEX)?).map_err(Error::json(&path))?;
        let files: BTreeSet<&String> = index.weight_map.values().collect();
        let open = |name: &String| {
            if is_plain(name) {
                return TensorFile::open(&folder.join(name));
            }
            Err(Error::Name { folder: folder.to_path_buf(), name: name.clone() })
        };
        return files.into_iter().map(open).collect();
    }
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))? {
        let path = entry.map_err(Error::io(folder, "read the folder"))?.path();
        let pickled = |extension: &std::ffi::OsStr| PICKLE_NAMES.iter().any(|name| extension == *name);
        if path.extension().is_some_and(pickled) {
            return Err(Error::Pickle { path });
        }
    }
    Err(Error::Missing { path: single, need: "it holds the weights of the checkpoint" })
}

/// The tensors of all files together.
pub(crate) fn all_tensors(files: &[TensorFile]) -> Result<BTreeMap<String, Found<'_>>> {
    let mut all = BTreeMap::new();
    for file in files {
        for (tensor, found) in file.tensors()? {
            if all.contains_key(&tensor) {
                return Err(Error::DoubleTensor { path: file.path.clone(), tensor });
            }
            all.insert(tensor, found);
        }
    }
    Ok(all)
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    /// As they are trained.
    F32,
    /// IEEE 754 half precision: eleven bits, up to 65,504.
    F16,
    /// bfloat16: eight bits, the range of f32.
    Bf16,
}

impl WeightType {
    /// What `config.json` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// The value that is read back where this one is stored.
    pub(crate) fn rounded(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::F16 => half::f16::from_f32(value).to_f32(),
            Self::Bf16 => half::bf16::from_f32(value).to_f32(),
        }
    }
}

/// Values that are made into bytes only when they are written.
pub(crate) struct Floats<F> {
    shape: Vec<usize>,
    dtype: WeightType,
    values: F,
}

impl<'a, F: Fn() -> Cow<'a, [f32]>> Floats<F> {
    pub(crate) fn new(shape: Vec<usize>, dtype: WeightType, values: F) -> Self {
        Self { shape, dtype, values }
    }
}

impl<'a, F: Fn() -> Cow<'a, [f32]>> View for Floats<F> {
    fn dtype(&self) -> Dtype {
        match self.dtype {
            WeightType::F32 => Dtype::F32,
            WeightType::F16 => Dtype::F16,
            WeightType::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = (self.values)();
        let values = values.iter();
        let bytes: Vec<u8> = match self.dtype {
            WeightType::F32 => values.flat_map(|value| value.to_le_bytes()).collect(),
            WeightType::F16 => values.flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect(),
            WeightType::Bf16 => values.flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect(),
        };
        bytes.into()
    }

    fn data_len(&self) -> usize {
        let width = if self.dtype == WeightType::F32 { 4 } else { 2 };
        width * self.shape.iter().product::<usize>()
    }
}

/// The bytes of a safetensors file, the same for the same tensors.
///
/// One entry of free text, since several would come in an order that differs from run to run.
pub(crate) fn serialize<V: View>(
    path: &Path,
    tensors: Vec<(String, V)>,
    text: (&str, String),
) -> Result<Vec<u8>> {
    let metadata = HashMap::from([(text.0.to_owned(), text.1)]);
    let bytes = safetensors::serialize(tensors, Some(metadata))
        .map_err(|source| Error::Safetensors { path: path.to_path_buf(), source })?;
    let header = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if header > MOST_HEADER {
        let expected = format!("softdict would not read back a header above {MOST_HEADER} bytes");
        return Err(Error::Header { path: path.to_path_buf(), header, bytes: bytes.len() as u64, expected });
    }
    Ok(bytes)
}
