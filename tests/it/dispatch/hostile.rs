//! Receivers of every bad habit.
