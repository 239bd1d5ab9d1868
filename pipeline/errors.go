package pipeline

import (
	"errors"
	"fmt"
)

// Sentinel errors. Those of Device are returned bare, so that refusing costs
// nothing on the data path; those about parameters come inside a *ParameterError.
var (
	// ErrBusy: the controller is still working on an earlier transfer.
	ErrBusy = errors.New("controller is busy")
	// ErrNoBuffer: all buffers hold frames that have not left yet.
	ErrNoBuffer = errors.New("no free buffer")
	// ErrFrameLength: a frame is shorter than 1 byte or longer than MaxFrame.
	ErrFrameLength = errors.New("frame length is out of range")
	// ErrProgress: a progress counter went backwards, beyond the frame, or moved
	// while nothing was being transferred.
	ErrProgress = errors.New("progress counter contradicts the transfer")
	// ErrParameter: a policy or device was given a value out of range.
	ErrParameter = errors.New("parameter is out of range")
	// ErrUnknownPolicy: no policy has that name.
	ErrUnknownPolicy = errors.New("unknown policy")
)

// ParameterError names a parameter that cannot be used, and what could be.
type ParameterError struct {
	Policy  string // name of the policy or device
	Name    string // name of the parameter
	Value   string
	Allowed string // the range in words, such as "1 to 8192 bytes"
	Err     error  // ErrParameter or ErrUnknownPolicy
}

func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s: %s %s: %v (allowed: %s)", e.Policy, e.Name, e.Value, e.Err, e.Allowed)
}

func (e *ParameterError) Unwrap() error { return e.Err }

func outOfRange(policy, name string, value int, allowed string) error {
	return &ParameterError{Policy: policy, Name: name, Value: fmt.Sprint(value), Allowed: allowed, Err: ErrParameter}
}
