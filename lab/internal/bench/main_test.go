package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	// Make "emu:" addresses known.
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	_ "github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
)

// TestMain makes this program also the workers of measurements, and the peers'
// programs under whose names it is linked.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	switch name := filepath.Base(os.Args[0]); {
	case name == "ucx_perftest":
		exit(fakeUCX(ctx))
	case name == "fi_pingpong":
		exit(fakePingpong(ctx))
	case name == "mpirun":
		exit(fakeMPI())
	case name == "dpdk-testpmd":
		exit(fakeTestpmd(ctx))
	case len(os.Args) > 1 && os.Args[1] == WorkerCommand:
		exit(RunWorker(ctx, os.Stdin, os.Stdout))
	}
	stop()
	goleak.VerifyTestMain(m)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// argument returns what follows a flag.
func argument(flag string) string {
	if i := slices.Index(os.Args, flag); i >= 0 && i+1 < len(os.Args) {
		return os.Args[i+1]
	}
	return ""
}

// listenUntil is a peer's server: it listens until it is told to end.
func listenUntil(ctx context.Context, port string) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return l.Close()
}

func fakeUCX(ctx context.Context) error {
	test := argument("-t")
	if test == "" {
		return listenUntil(ctx, argument("-p"))
	}
	if os.Getenv("FAKE_UCX_FAILS") != "" {
		return fmt.Errorf("no transport")
	}
	latency := map[string]string{"tag_lat": "0.250", "ucp_put_lat": "0.125", "ucp_get": "0.020", "tag_bw": "0.100"}[test]
	if latency == "" {
		return fmt.Errorf("unknown test %s", test)
	}
	if argument("-R") != "50" {
		latency = "3.500"
	}
	_, err := fmt.Printf("iterations,%s.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"+
		"1000,%s,0.3,0.3,1000.00,2000.00,5000000,6000000\n", argument("-R"), latency)
	return err
}

func fakePingpong(ctx context.Context) error {
	if port := argument("-B"); port != "" {
		return listenUntil(ctx, port)
	}
	fmt.Println("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec")
	_, err := fmt.Println("4k      20k     =20k     2.4m        0.29s      8.98       0.50       0.14")
	return err
}

// fakeMPI is mpirun of NetPIPE, where libfabric's shm cannot be used.
func fakeMPI() error {
	if argument("mtl_ofi_provider_include") == "shm" {
		return fmt.Errorf("PML cm cannot be selected")
	}
	return os.WriteFile(argument("-o"), []byte("      64 651.041667   0.00000075\n"), 0o600)
}

func fakeTestpmd(ctx context.Context) error {
	device := argument("--vdev")
	_, path, _ := strings.Cut(device, "socket=")
	path, _, _ = strings.Cut(path, ",")
	if strings.Contains(device, "role=server") {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		for i := range 5 {
			fmt.Printf("  Rx-pps:  %12d          Rx-bps:    0\n  Tx-pps: 0 Tx-bps: 0\n", i*1000)
		}
	}
	<-ctx.Done()
	return nil
}

// install puts programs with the names of peers first in the path.
func install(t *testing.T, names ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts some dozens of processes")
	}
	self := must.Get(os.Executable())(t)
	folder := t.TempDir()
	for _, name := range names {
		must.OK(t, os.Symlink(self, filepath.Join(folder, name)))
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}
