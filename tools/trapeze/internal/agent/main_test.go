package agent_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
