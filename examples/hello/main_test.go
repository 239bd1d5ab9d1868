package main

import (
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	main()
	// Output: received: hello, NIC
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
