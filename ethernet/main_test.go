package ethernet_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
