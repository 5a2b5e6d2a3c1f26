//! Reading the fixtures that `scripts/golden.py` makes with PyTorch.

use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

/// The folder of the fixtures, wherever the workspace is.
pub fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The tensors of one fixture file.
#[derive(Debug)]
pub struct Golden {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl Golden {
    /// Reads `tests/golden/<name>`.
    ///
    /// # Panics
    /// When the file is missing.
    pub fn open(name: &str) -> Self {
        let path = golden_folder().join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { bytes, path }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tensors().names().into_iter().map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// Whether a tensor holds floats.
    ///
    /// # Panics
    /// When there is no such tensor.
    pub fn is_float(&self, name: &str) -> bool {
        self.tensors().tensor(name).unwrap().dtype() == Dtype::F32
    }

    /// Shape and values of a float tensor.
    ///
    /// # Panics
    /// When there is no such f32 tensor.
    pub fn floats(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        (view.shape().to_vec(), values)
    }

    /// Shape and values of an integer tensor (I64, I32 or U32).
    ///
    /// # Panics
    /// When there is no such tensor.
    pub fn integers(&self, name: &str) -> (Vec<usize>, Vec<i64>) {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let data = view.data();
        let values = match view.dtype() {
            Dtype::I64 => data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::I32 => {
                data.chunks_exact(4).map(|b| i64::from(i32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            Dtype::U32 => {
                data.chunks_exact(4).map(|b| i64::from(u32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            other => panic!("{name} is {other:?}, not an integer tensor"),
        };
        (view.shape().to_vec(), values)
    }
}
