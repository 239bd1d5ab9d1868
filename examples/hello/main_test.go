package main

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/via"
	"go.uber.org/goleak"
)

func TestHello(t *testing.T) {
	defer goleak.VerifyNone(t)
	const message = "hello, test"
	got, err := hello("emu:?wire=mem:hello-test", message)
	if err != nil {
		t.Fatal(err)
	}
	if got != message {
		t.Errorf("received %q, sent %q", got, message)
	}
}

func TestHelloBadAddress(t *testing.T) {
	defer goleak.VerifyNone(t)
	if _, err := hello("emu:?wire=smoke-signals", ""); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("error %v, want %v", err, via.ErrInvalidParameter)
	}
}
