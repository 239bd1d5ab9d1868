package netmem_test

import "testing"

// TestAway: what clients do while servers are away, in part until a timeout.
func TestAway(t *testing.T) {
	together(t, map[string]func(*testing.T){
		"cut off":                cutOff,
		"all cut off":            allCutOff,
		"reconnect":              reconnect,
		"reconnect, cached":      reconnectCached,
		"reconnect of all":       reconnectOfAll,
		"restarted":              restarted,
		"first client needs all": firstClientNeedsAll,
		"open beside silence":    openBesideSilence,
	})
}
