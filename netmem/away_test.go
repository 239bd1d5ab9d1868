package netmem_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// TestAway: what clients do while servers are away, in part until a timeout.
func TestAway(t *testing.T) {
	cases := map[string]func(*testing.T){
		"acknowledged while server 0 is away": func(t *testing.T) { acknowledgedWhileAway(t, 0) },
		"acknowledged while server 1 is away": func(t *testing.T) { acknowledgedWhileAway(t, 1) },
		"no witness":                          noWitness,
		"two writers":                         twoWriters,
		"either alone":                        eitherAlone,
		"killed":                              killedServer,
		"cut off":                             cutOff,
		"all cut off":                         allCutOff,
		"comeback":                            comeback,
		"comeback, cached":                    comebackCached,
		"comeback of all":                     comebackOfAll,
		"restarted":                           restarted,
		"first client needs all":              firstClientNeedsAll,
		"open beside silence":                 openBesideSilence,
	}
	seeds := 2
	if soak.Wanted() {
		seeds = 20
	}
	for seed := range uint64(seeds) {
		for _, servers := range []int{2, 3} {
			cases[fmt.Sprintf("survives, %d servers, seed %d", servers, seed)] = func(t *testing.T) { survive(t, seed, servers) }
		}
	}
	together(t, cases)
}
