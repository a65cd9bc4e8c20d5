//! The `event-broker` program: parses the command line and hands over.

mod cli;

fn main() -> std::process::ExitCode {
    allocator::give_back_soon();
    cli::run()
}
