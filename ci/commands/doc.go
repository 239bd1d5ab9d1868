// Package commands holds tests of the trapeze command as its users run it: a
// program of its own, two of them where there are two ends, and signals that
// come at bad times.
package commands
