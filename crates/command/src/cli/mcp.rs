//! Arguments of `fyke mcp`, which answers programs by the Model Context Protocol.

use clap::Args;

/// `fyke mcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
An assistant starts fyke mcp itself; its configuration names the command, such as

  {\"mcpServers\": {\"fyke\": {\"command\": \"fyke\", \"args\": [\"mcp\"]}}}

fyke mcp reads one JSON-RPC message a line from standard input, and writes one a line to standard output. It has the
tools list, explain, stats, show, log, try and why and, with --allow-edit, add, delete and undo. Texts that come from
packets are in fields named `untrusted`, as hexadecimal digits, so that no packet gives orders.")]
pub struct McpArgs {
    /// Permit edits: add, delete, undo. Without this option, running fykes are only read
    #[arg(long)]
    pub allow_edit: bool,
}
