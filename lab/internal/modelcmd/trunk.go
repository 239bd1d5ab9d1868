package modelcmd

import (
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
)

// trunkFlags describe senders that share a trunk.
type trunkFlags struct {
	profileFlag
	payloadFlag
	Count    int     `flag:"count" default:"100" range:"1..100000" help:"payloads of each sender"`
	Gap      float64 `flag:"gap-us" range:"0..1000000" help:"microseconds between a sender's postings (default: as fast as the host can)"`
	Senders  int     `flag:"senders" default:"2" range:"1..16" help:"hosts that send, each to one of its own"`
	Slow     float64 `flag:"slow" default:"1" range:"1..1000" help:"the first sender's bus takes so many times as long for each byte"`
	Packet   int     `flag:"packet" range:"0..16777216" help:"most bytes of a packet; the trunk is free between packets (default: a payload is one packet)"`
	Watchdog float64 `flag:"watchdog-us" range:"0..1000000" help:"end a payload whose sender holds the trunk and moves nothing for so many microseconds (default: never)"`
}

// shared checks the flags and loads the profile: a case for each policy.
func (f *trunkFlags) shared(flag string, policies ...string) (all []report.Case, err error) {
	if err := checkPolicies(flag, policies...); err != nil {
		return nil, err
	}
	p, err := loadProfile("--profile", f.Profile)
	for _, policy := range policies {
		all = append(all, report.Case{Profile: p, Policy: policy, Payload: f.Payload, Count: f.Count, Gap: profile.Micros(f.Gap), Warmup: -1,
			Trunk: virtual.Trunk{Senders: f.Senders, Slow: f.Slow, Packet: f.Packet, Watchdog: profile.Micros(f.Watchdog)}})
	}
	return all, err
}

type trunksFlags struct {
	trunkFlags
	Policies []string `flag:"policies" split:"comma" default:"store-and-forward,eager,amp" help:"delivery policies"`
}

func (f *trunksFlags) cases() ([]report.Case, error) { return f.shared("--policies", f.Policies...) }

// trunkPicture shows who holds a trunk.
type trunkPicture struct {
	trunkFlags `override:"count" default:"4"`
	policyFlag
}

func (f *trunkPicture) one() (report.Case, error) {
	all, err := f.shared("--policy", f.Policy)
	if err != nil {
		return report.Case{}, err
	}
	return all[0], nil
}
