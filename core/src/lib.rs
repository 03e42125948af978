#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
//! The rules of Holdfast.
extern crate alloc;
