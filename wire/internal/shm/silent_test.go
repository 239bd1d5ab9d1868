package shm_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestSilent: a peer that does not answer, or does not end what it does, is waited for no longer than a timeout.
func TestSilent(t *testing.T) {
	checkLeaks(t)
	waittest.Together(t, map[string]func(*testing.T){
		"unexport, unanswered":        unexportUnanswered,
		"unexport from a hung peer":   unexportFromHungPeer,
		"hung peer":                   hungPeer,
		"settle":                      settle,
		"connection without greeting": connectionWithoutGreeting,
	})
}
