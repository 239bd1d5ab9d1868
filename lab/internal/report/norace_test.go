//go:build !race

package report_test

const slow = false
