package bench

import (
	"fmt"
	"regexp"
)

// Peers returns those that we know, the fastest kind first.
func Peers() []Peer {
	return []Peer{ucx, libfabric, testpmd, unixSocket, tcpLoopback, socat,
		mpiPeer("openmpi-ucx"), mpiPeer("openmpi-shm"), mpiPeer("openmpi-tcp"), mpiPeer("openmpi-sm")}
}

// ucx is UCX over shared memory: posix for short messages, cross-memory attach for
// long ones, as it would choose by itself on one host without other transports. Both ends of ucp_put_lat
// write in turn and poll the last byte of their memory, and it tells half of that; the client of ucp_get reads
// again and again, with one read under way, while the server is there for it. Its MB has 2^20 bytes.
var ucx = Peer{Name: "ucx", Package: "ucx-utils", Program: "ucx_perftest", Statistic: "p50",
	Tests: []string{"latency", "put", "get", fetch, "bandwidth", "rate"}, ask: asks(map[string][]program{
		"latency": ucxLatency("tag_lat"), "put": ucxLatency("ucp_put_lat"), "get": ucxLatency("ucp_get"), fetch: ucxLatency("ucp_get"),
		"bandwidth": {ucxTest("tag_bw", "50", 4, float64(1<<20)/1e6)}, "rate": {ucxTest("tag_bw", "50", 6, 1)},
	})}

// ucxLatency takes two runs: one run tells one percentile.
func ucxLatency(test string) []program {
	return []program{ucxTest(test, "50", 1, 1), ucxTest(test, "99.9", 1, 1)}
}

// ucxTest takes a column of the eight in a result: iterations, latency at the rank, average and overall latency, average and
// overall bandwidth, average and overall message rate.
func ucxTest(test, rank string, column int, scale float64) program {
	return program{environment: []string{"UCX_TLS=posix,cma,self", "UCX_LOG_LEVEL=error"}, server: "ucx_perftest -p {port}",
		client: "ucx_perftest -p {port} 127.0.0.1 -t " + test + " -s {bytes} -n {messages} -R " + rank + " -f -v",
		figure: found(fmt.Sprintf(`(?m)^(?:[\d.]+,){%d}([\d.]+)(?:,[\d.]+){%d}$`, column, 7-column), scale)}
}

// libfabric is its provider for shared memory. fi_pingpong tells the mean only, in the column usec/xfer.
var libfabric = Peer{Name: "libfabric", Package: "libfabric-bin", Program: "fi_pingpong", Statistic: "mean", Tests: []string{"latency"},
	ask: asks(map[string][]program{"latency": {{server: pingpong + " -B {port}", client: pingpong + " -P {port} 127.0.0.1",
		figure: found(`(?m)^\d\S*(?: +\S+){5} +(\S+)`, 1)}}})}

const pingpong = "fi_pingpong -p shm -e rdm -m tagged -S {bytes} -I {messages}"

// testpmd is DPDK's memif driver on both sides: one sends, one receives and counts. Each is on one core, with its main thread,
// which sleeps, and the one that forwards. DPDK leaves 12 MB where its sockets are: that is {folder}, which is removed.
var testpmd = Peer{Name: "testpmd", Package: "dpdk-dev", Program: "dpdk-testpmd", Tests: []string{"frames"},
	ask: asks(map[string][]program{"frames": {{environment: []string{"RUNTIME_DIRECTORY={folder}"}, ready: "memif",
		server: forwarding("server", "rxonly"), client: forwarding("client", "txonly"), figure: receivedRate}}})}

func forwarding(role, mode string) string {
	return "dpdk-testpmd --lcores 0@{core},1@{core} --no-huge -m 512 --no-pci --file-prefix " + role +
		" --vdev net_memif0,role=" + role + ",id=0,socket={folder}/memif,socket-abstract=no -- --forward-mode=" + mode +
		" --stats-period=1 --total-num-mbufs=16384 --txpkts={bytes}"
}

// socat moves bytes between two hosts, as many people do it: by Linux's TCP, with the offloads
// that a veth has by itself.
var socat = Peer{Name: "socat", Package: "socat", Program: "socat", Tests: veths,
	ask: asks(map[string][]program{veth: socatStream, vethJumbo: socatStream, vethLong: socatStream})}

var socatStream = []program{{server: "socat -u -b {bytes} TCP-LISTEN:{port} OPEN:/dev/null",
	client: "socat -u -b {bytes} OPEN:/dev/zero,readbytes={stream} TCP:" + vethAddresses[0] + ":{port}", figure: untilBothEnd}}

// MPI is the test of messages of Open MPI, which NetPIPE sends back and forth: half a round
// trip, the best of its seven trials. Ours is Open MPI over the provider of libfabric.
const MPI = "mpi"

// openMPI are the arguments of mpirun that say what carries the messages of Open MPI 4.1: its layer
// for libfabric with a provider, UCX, or shared memory of its own.
var openMPI = map[string]string{
	Us:            overLibfabric("trapeze;ofi_rxm"),
	"openmpi-ucx": "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any",
	"openmpi-shm": overLibfabric("shm"),
	"openmpi-tcp": overLibfabric("tcp;ofi_rxm"),
	"openmpi-sm":  "--mca pml ob1 --mca btl self,vader",
}

func overLibfabric(provider string) string {
	return "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include " + provider + " --mca btl self"
}

// withSemicolon matches arguments that end a command of a shell if they are not quoted.
var withSemicolon = regexp.MustCompile(`\S*;\S*`)

// mpiPeer is Open MPI over one of openMPI. A line of NetPIPE's result has bytes, Mbit/s and seconds.
func mpiPeer(name string) Peer {
	hint := "%w; see whether Open MPI runs: mpirun " + withSemicolon.ReplaceAllString(openMPI[name], "'$0'") + " NPopenmpi"
	if name == Us {
		hint = "install our provider of libfabric, the package libfabric-trapeze (docs/mpi.md), if fi_info -p trapeze finds none: " + hint
	}
	return Peer{Name: name, Package: "netpipe-openmpi", Program: "NPopenmpi", Statistic: "best", Tests: []string{MPI},
		ask: asks(map[string][]program{MPI: {{environment: []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
			client: "mpirun -n 2 --oversubscribe --bind-to none " + openMPI[name] + " NPopenmpi -l {bytes} -u {bytes} -p 0 -n {trial} -o /dev/stdout",
			figure: found(`(?m)^ *\d+ +[\d.]+ +([\d.e+-]+)\s*$`, 1e6), hint: hint}}})}
}
