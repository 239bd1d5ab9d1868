// Package contexttest has contexts that end in the middle of what is under way.
package contexttest

import "context"

// EndsAfter is a context that is cancelled once its Err has been called so many times. Its Done
// is that of Context, which ends what waits and does not ask.
type EndsAfter struct {
	context.Context
	Looks int
}

func (e *EndsAfter) Err() error {
	if e.Looks--; e.Looks < 0 {
		return context.Canceled
	}
	return e.Context.Err()
}
