package main

import (
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	main()
	// Output:
	// 8 MiB of other machines in pages of 8 KiB
	// a server is gone
	// 0 of 10382 entries are wrong
	// pages were missed: true, and found in the cache: true
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
