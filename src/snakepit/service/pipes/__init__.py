"""Byte streams to confined programs: sftp-server, git, rsync. The connection itself is handed to the program."""
