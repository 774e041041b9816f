"""What people can do, one file per verb or noun. A verb takes a Call and gives its answer; core.access knows rights."""
