//! Dispatch by the real program: brokers killed at random times, and receivers that misbehave in many ways.

mod consent;
mod hostile_receivers;
mod kills;
mod receiver;
