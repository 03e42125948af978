//! The ReservationObject: one per generation. It owns the driver, stores the output while it is produced, serves any
//! number of readers, and settles once.
//!
//! | file | part |
//! |---|---|
//! | `object` | the platform's entry points: calls and the alarm |
//! | `generation` | load, apply, store, arm, effects |
//! | `store` | the rows |
//! | `log` | the chunk log, from memory and from rows |
//! | `readers` | cursors over the log, and what serves them |
//! | `driver` | calls the provider and feeds the log |
//! | `operations` | asks the provider about an operation, and takes its stream up again |
//! | `result` | the result that an answer about an operation brought: kept, and read |
//! | `edge` | the object's side of a driver at the edge |
//! | `outbox` | brings postings to the tenant until they are acknowledged |
//! | `repeat` | a further attempt: the hold is extended, the stored request is sent again |

mod driver;
mod edge;
mod generation;
mod log;
mod object;
mod operations;
mod outbox;
mod readers;
mod repeat;
mod result;
mod store;

pub use object::ReservationObject;
