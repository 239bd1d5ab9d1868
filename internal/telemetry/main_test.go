package telemetry_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// counters is a struct as those of Stats methods are.
type counters struct {
	Frames uint64  `json:"frames" help:"Frames." unit:"frames"`
	Level  uint64  `json:"level" help:"A level." unit:"frames" kind:"gauge"`
	Hidden uint64  `json:"-"`
	Queues []queue `json:"queues" help:"The queues." unit:"frames"`
}

type queue struct {
	Lost uint64 `json:"lost" help:"Lost ones." unit:"frames"`
}

var errGone = errors.New("gone")

// source is one with counters; its command fail fails, and big answers with too much.
func source(address string) *telemetry.Source {
	return &telemetry.Source{
		Address: address,
		Port: func() (telemetry.Port, error) {
			return telemetry.Port{Name: address, MAC: "02:00:00:00:00:01", MTU: 4096, Queues: 1, LinkUp: true, Received: 3, ReceivedBytes: 300}, nil
		},
		Stats: func() (any, error) { return counters{Frames: 7, Queues: []queue{{0}, {9}}}, nil },
		Commands: []telemetry.Command{
			{Name: "sum", Help: "Adds.", Needs: 1, Run: func(_ context.Context, p []uint64) (any, error) {
				return map[string]any{"address": address, "parameters": p}, nil
			}},
			{Name: "fail", Help: "Fails.", Run: func(context.Context, []uint64) (any, error) { return nil, errGone }},
			{Name: "big", Help: "Says too much.", Run: func(context.Context, []uint64) (any, error) { return make([]string, 1<<16), nil }},
		},
	}
}

// bare is a source without commands, as an agent's NICs are.
func bare(address string) *telemetry.Source {
	s := source(address)
	s.Commands = nil
	return s
}

// other is a source with commands that others have not, and with one of a name that they have.
func other(address string) *telemetry.Source {
	s := source(address)
	s.Commands = []telemetry.Command{
		{Name: "big", Help: "Says little.", Run: func(context.Context, []uint64) (any, error) { return "small", nil }},
		{Name: "twice", Help: "Needs two.", Needs: 2, Run: func(_ context.Context, p []uint64) (any, error) { return p, nil }},
	}
	return s
}

// serve shows sources to the test, and returns the only socket.
func serve(t testing.TB, sources ...*telemetry.Source) string {
	t.Helper()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	for _, s := range sources {
		t.Cleanup(telemetry.Register(s, telemetry.Options{}))
	}
	return only(t)
}

// only returns the socket of the folder that the environment names.
func only(t testing.TB) string {
	t.Helper()
	for _, path := range telemetry.Find() {
		if strings.HasPrefix(path, os.Getenv("RUNTIME_DIRECTORY")) {
			return path
		}
	}
	t.Fatal("there is no socket")
	return ""
}

func dial(t testing.TB, path string) *telemetry.Client {
	t.Helper()
	c := must.Get(telemetry.Dial(t.Context(), path))(t)
	t.Cleanup(func() { c.Close() })
	return c
}
