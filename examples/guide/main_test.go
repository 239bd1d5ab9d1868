package main

import (
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	main()
	// Output:
	// connect: 21.5 C
	// in place: 21.5 C
	// in place: 22.0 C
	// queue: a message of 6 bytes
	// queue: a message of 6 bytes
	// queue: a message of 6 bytes
	// remote: 21.5 C in row 3
	// ends: no listener has this name
	// ends: last
	// ends: all has been received
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
