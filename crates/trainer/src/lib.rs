//! The training loop: data, schedule, optimizer, evaluation, exact state
