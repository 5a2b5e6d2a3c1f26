//! Checkpoints as Hugging Face folders, both ways, written atomically
