package conform

import "context"

// T is the part of testing.TB that a check needs. Check.Run has one without go test.
type T interface {
	Name() string
	Context() context.Context
	Cleanup(func())
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}
