//! Dispatch by the real program: killed at random, and before receivers of every bad habit.

mod consent;
mod hostile_receivers;
mod kills;
mod receiver;
