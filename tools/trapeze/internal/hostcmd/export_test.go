package hostcmd

// NewCommands is Commands with somebody who answers writes to sysfs.
var NewCommands = newCommands
