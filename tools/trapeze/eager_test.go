package trapeze_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// eager is what commands with --eager say.
type eager struct {
	Pushed   uint64 `json:"blocks_pushed"`
	Taken    uint64 `json:"blocks_taken"`
	Read     uint64 `json:"blocks_read"`
	FellBack uint64 `json:"registrations_fell_back"`
}

// TestPingEager: of short messages between two processes with eager memory the NICs read
// neither payload nor descriptor nor token from host memory, be they in these processes or in a third.
// A process that is killed as it pushes blocks leaves a NIC that the next can use.
func TestPingEager(t *testing.T) {
	needsProgram(t)
	for name, devices := range map[string]func(t *testing.T) (server, client string){
		"UDP": func(t *testing.T) (server, client string) { return udpPair(t, "") },
		"vfio-user": func(t *testing.T) (server, client string) {
			d := served(t, 2)
			return d[0], d[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := devices(t)
			start(t, "ping", "--serve", "--eager", "--device", server)
			for i := range 3 {
				var r struct {
					Received uint64
					Corrupt  uint64
					Eager    eager
				}
				says(t, &r, "ping", "--eager", "-q", "-c", "200", "-i", "0", "--device", client)
				// For each of 200 there and back: descriptor and token of a send and of a receive,
				// and the payload of the send. A push has the tokens of several receives.
				e := r.Eager
				should.Hold(t, r.Received == 200 && r.Corrupt == 0 && e.Read == 0 && e.FellBack == 0 && e.Taken >= 1200 && e.Pushed >= 700, "run %d: %+v", i, r)
				if i == 0 {
					killed := start(t, "ping", "--eager", "-q", "-c", "0", "-i", "0", "--device", client)
					time.Sleep(300 * time.Millisecond)
					_ = killed.Process.Kill()
					<-killed.done
				}
			}
		})
	}
}
