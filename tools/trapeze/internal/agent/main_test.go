package agent_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(clientAt); at != "" {
		if err := runClient(at, os.Getenv(clientPeer)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}
