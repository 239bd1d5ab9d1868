package via_test

import (
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
	goleak.VerifyTestMain(m)
}
