package emulator_test

import "time"

const (
	// brief is how long a test waits for what must not come.
	brief = 20 * time.Millisecond
	// timeout bounds waits for what must come.
	timeout = 5 * time.Second
)
