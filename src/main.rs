//! The `event-broker` program: parses the command line and hands over.

mod cli;

/// What a request allocates on one thread another one frees; the system's allocator takes a lock for that.
/// `bench alone --callers 256 --batch 1` shows the difference when it is built without this: about a third.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
