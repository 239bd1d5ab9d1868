package virtio_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
)

// timeout ends tests that do not end by themselves.
const timeout = time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }
