//go:build race

package report_test

// slow says that the race detector makes everything take ten times as long: what only
// computes, on one goroutine each, is then measured on a few cases.
const slow = true
