package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// MPI is the test of messages of Open MPI, which NetPIPE sends back and forth: half a round
// trip, the best of its seven trials. Ours is Open MPI over the provider of libfabric.
const MPI = "mpi"

// openMPI are the arguments of mpirun that say what carries the messages of Open MPI 4.1: its layer
// for libfabric with a provider, UCX, or shared memory of its own.
var openMPI = map[string][]string{
	Us:            overLibfabric("trapeze;ofi_rxm"),
	"openmpi-ucx": {"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"},
	"openmpi-shm": overLibfabric("shm"),
	"openmpi-tcp": overLibfabric("tcp;ofi_rxm"),
	"openmpi-sm":  {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"},
}

func overLibfabric(provider string) []string {
	return []string{"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", provider, "--mca", "btl", "self"}
}

// mpiPeer is Open MPI over something else than us.
func mpiPeer(name string) Peer {
	return Peer{Name: name, Package: "netpipe-openmpi", Program: "NPopenmpi", Statistic: "best", Tests: []string{MPI},
		ask: func(ctx context.Context, q Question) (Answer, error) { return askMPI(ctx, name, q) }}
}

// withSemicolon matches arguments that end a command of a shell if they are not quoted.
var withSemicolon = regexp.MustCompile(`\S*;\S*`)

func askMPI(ctx context.Context, name string, q Question) (a Answer, err error) {
	folder, err := os.MkdirTemp("", "trapeze-mpi-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(folder)
	file, bytes := filepath.Join(folder, "netpipe"), strconv.Itoa(q.Bytes)
	args := append([]string{"-c", fmt.Sprintf("%d,%d", q.Cores[0], q.Cores[1]), "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"}, openMPI[name]...)
	args = append(args, "NPopenmpi", "-l", bytes, "-u", bytes, "-p", "0", "-n", strconv.Itoa(iterations(q.For, q.Bytes)/7+1), "-o", file)
	p, err := start(ctx, nil, "taskset", args...)
	if err != nil {
		return a, err
	}
	if _, err := p.output(); err != nil {
		install := ""
		if name == Us {
			install = "install our provider of libfabric, the package libfabric-trapeze (docs/mpi.md), if fi_info -p trapeze finds none: "
		}
		return a, fmt.Errorf("%s%w; see whether Open MPI runs: mpirun %s NPopenmpi", install, err, withSemicolon.ReplaceAllString(strings.Join(openMPI[name], " "), "'$0'"))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return a, err
	}
	a.Value, err = netpipeMicroseconds(string(text))
	return a, err
}

// netpipeMicroseconds finds the time in NetPIPE's file: a line has bytes, Mbit/s and seconds.
func netpipeMicroseconds(text string) (float64, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return 0, errNoColumn
	}
	seconds, err := strconv.ParseFloat(fields[2], 64)
	return seconds * 1e6, err
}
