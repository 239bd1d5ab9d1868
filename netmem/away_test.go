package netmem_test

import "testing"

// TestAway: what clients do while servers are away, in part until a timeout.
func TestAway(t *testing.T) {
	together(t, map[string]func(*testing.T){
		"killed":                 killedServer,
		"cut off":                cutOff,
		"all cut off":            allCutOff,
		"comeback":               comeback,
		"comeback, cached":       comebackCached,
		"comeback of all":        comebackOfAll,
		"restarted":              restarted,
		"first client needs all": firstClientNeedsAll,
		"open beside silence":    openBesideSilence,
	})
}
