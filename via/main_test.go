package via_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(syscallChild) != "" {
		os.Exit(runSyscallChild())
	}
	if folder := os.Getenv(servedChild); folder != "" {
		os.Exit(runServedChild(folder))
	}
	_ = flag.Set("test.parallel", "8") // tests that are parallel wait, for the most part
	goleak.VerifyTestMain(m)
}
