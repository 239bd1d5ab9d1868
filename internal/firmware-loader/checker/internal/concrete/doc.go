// Package concrete runs BPF programs the slow and careful way, for tests of the
// checker: it looks at every access of every instruction (RFC 9669), and reports
// what a checked program must never do.
package concrete
