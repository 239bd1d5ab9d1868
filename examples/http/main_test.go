package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// HTTP/1.1: HTTP/1.1 from 02:00:00:00:00:01
	// HTTP/2.0: HTTP/2.0 from 02:00:00:00:00:01
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
