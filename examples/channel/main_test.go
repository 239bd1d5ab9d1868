package main

import (
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	main()
	// Output: 16 bytes, CRC 567b875e: hello, channels!
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
