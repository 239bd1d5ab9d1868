package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNotInstalled: a peer's program is not on this machine.
var ErrNotInstalled = errors.New("not installed")

// Us is who we are in a comparison.
const Us = "trapeze"

// MPI is the question of messages of Open MPI, which NetPIPE sends back and forth: half a round
// trip, the best of its seven trials. Ours is Open MPI over the provider of libfabric.
const MPI = "mpi"

// Peer is something that we are compared with.
type Peer struct {
	Name string
	// Package of Debian that has it, and the program that must be there; "" for what Go brings along.
	Package, Program string
	// Statistic names its figure of a latency: p50, mean or best.
	Statistic string
	// programs measure it, by question; a second one measures the tail. A peer without programs is a
	// task of ours over wire.
	programs map[string][]program
	wire     string
}

// Peers returns those that we know, the fastest kind first.
func Peers() []Peer {
	return []Peer{
		ucx, libfabric, testpmd,
		{Name: "unix", wire: "unix", Statistic: "p50"}, {Name: "tcp", wire: "tcp", Statistic: "p50"}, socat,
		mpi("openmpi-ucx", "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"),
		mpi("openmpi-shm", overLibfabric+"shm"), mpi("openmpi-tcp", overLibfabric+"tcp;ofi_rxm"),
		mpi("openmpi-sm", "--mca pml ob1 --mca btl self,vader"),
	}
}

// PeerNames returns the names of the peers.
func PeerNames() (names []string) {
	for _, p := range Peers() {
		names = append(names, p.Name)
	}
	return names
}

// Available says whether the peer can be run here: nil, or an error that wraps
// ErrNotInstalled and says which package to install.
func (p *Peer) Available() error {
	if p.Program == "" {
		return nil
	}
	if _, err := exec.LookPath(p.Program); err != nil {
		return fmt.Errorf("%s: %w: %s is missing (on Debian: apt-get install %s)", p.Name, ErrNotInstalled, p.Program, p.Package)
	}
	return nil
}

// ucx is UCX over shared memory: posix for short messages, cross-memory attach for
// long ones, as it would choose by itself on one host without other transports. Both ends of ucp_put_lat
// write in turn and poll the last byte of their memory, and it tells half of that; the client of ucp_get reads
// again and again, with one read under way, while the server is there for it. Its MB has 2^20 bytes.
var ucx = Peer{Name: "ucx", Package: "ucx-utils", Program: "ucx_perftest", Statistic: "p50", programs: map[string][]program{
	"latency": ucxLatency("tag_lat"), "put": ucxLatency("ucp_put_lat"), "get": ucxLatency("ucp_get"), "fetch": ucxLatency("ucp_get"),
	"bandwidth": {ucxTest("tag_bw", "50", 4, float64(1<<20)/1e6)}, "rate": {ucxTest("tag_bw", "50", 6, 1)},
}}

// ucxLatency takes two runs: one run tells one percentile.
func ucxLatency(test string) []program {
	return []program{ucxTest(test, "50", 1, 1), ucxTest(test, "99.9", 1, 1)}
}

// ucxTest takes a column of the eight in a result: iterations, latency at the rank, average and overall latency, average and
// overall bandwidth, average and overall message rate.
func ucxTest(test, rank string, column int, scale float64) program {
	return program{environment: []string{"UCX_TLS=posix,cma,self", "UCX_LOG_LEVEL=error"}, server: "ucx_perftest -p {port}",
		client: "ucx_perftest -p {port} 127.0.0.1 -t " + test + " -s {bytes} -n {messages} -R " + rank + " -f -v",
		figure: regexp.MustCompile(fmt.Sprintf(`^(?:[\d.]+,){%d}([\d.]+)(?:,[\d.]+){%d}$`, column, 7-column)), scale: scale}
}

// libfabric is its provider for shared memory. fi_pingpong tells the mean only, in the column usec/xfer.
var libfabric = Peer{Name: "libfabric", Package: "libfabric-bin", Program: "fi_pingpong", Statistic: "mean",
	programs: map[string][]program{"latency": {{server: pingpong + " -B {port}", client: pingpong + " -P {port} 127.0.0.1",
		figure: regexp.MustCompile(`^\d\S*(?: +\S+){5} +(\S+)`), scale: 1}}}}

const pingpong = "fi_pingpong -p shm -e rdm -m tagged -S {bytes} -I {messages}"

// testpmd is DPDK's memif driver on both sides: one sends, one receives and counts. Each is on one core, with its main thread,
// which sleeps, and the one that forwards. DPDK leaves 12 MB beside its sockets: they are in {folder}, which is removed.
var testpmd = Peer{Name: "testpmd", Package: "dpdk-dev", Program: "dpdk-testpmd",
	programs: map[string][]program{"frames": {{environment: []string{"RUNTIME_DIRECTORY={folder}"}, ready: "memif",
		server: forwarding("server", "rxonly"), client: forwarding("client", "txonly"),
		figure: regexp.MustCompile(`^\s*Rx-pps:\s+([1-9]\d*)`), scale: 1, everySecond: true}}}}

func forwarding(role, mode string) string {
	return "dpdk-testpmd --lcores 0@{core},1@{core} --no-huge -m 512 --no-pci --file-prefix " + role +
		" --vdev net_memif0,role=" + role + ",id=0,socket={folder}/memif,socket-abstract=no -- --forward-mode=" + mode +
		" --stats-period=1 --total-num-mbufs=16384 --txpkts={bytes}"
}

// socat moves bytes between two hosts, as many people do it: by Linux's TCP, with the offloads
// that a veth has by itself.
var socat = Peer{Name: "socat", Package: "socat", Program: "socat",
	programs: map[string][]program{veth: socatStream, vethJumbo: socatStream, vethLong: socatStream}}

var socatStream = []program{{server: "socat -u -b {bytes} TCP-LISTEN:{port} OPEN:/dev/null",
	client: "socat -u -b {bytes} OPEN:/dev/zero,readbytes={stream} TCP:" + vethAddresses[0] + ":{port}"}}

// overLibfabric are the arguments of mpirun that have Open MPI's messages carried by a provider of libfabric.
const overLibfabric = "--mca pml cm --mca mtl ofi --mca btl self --mca mtl_ofi_provider_include "

// withSemicolon matches arguments that end a command of a shell if they are not quoted.
var withSemicolon = regexp.MustCompile(`\S*;\S*`)

// mpi is Open MPI 4.1 with arguments of mpirun that say what carries its messages. A line of NetPIPE's result
// has bytes, Mbit/s and seconds.
func mpi(name, arguments string) Peer {
	hint := "%w; see whether Open MPI runs: mpirun " + withSemicolon.ReplaceAllString(arguments, "'$0'") + " NPopenmpi"
	if name == Us {
		hint = "install our provider of libfabric, the package libfabric-trapeze (docs/mpi.md), if fi_info -p trapeze finds none: " + hint
	}
	return Peer{Name: name, Package: "netpipe-openmpi", Program: "NPopenmpi", Statistic: "best",
		programs: map[string][]program{MPI: {{environment: []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
			client: "mpirun -n 2 --oversubscribe --bind-to none " + arguments + " NPopenmpi -l {bytes} -u {bytes} -p 0 -n {trial} -o /dev/stdout",
			figure: regexp.MustCompile(`^ *\d+ +[\d.]+ +([\d.e+-]+)\s*$`), scale: 1e6, hint: hint}}}}
}

// Answer is one figure in the question's unit. Tail is the p99.9 latency, 0 if the peer does not print it.
type Answer struct {
	Value, Tail float64
	switches    float64 // a second, of our processes
}

// answers says whether the peer can be asked a question.
func (p *Peer) answers(q *question) bool {
	if p.wire == "" {
		return p.programs[q.name] != nil
	}
	return q.test != "" && q.wire == "" && wires[p.wire].has(q.test)
}

func (p *Peer) ask(ctx context.Context, q *asked) (a Answer, err error) {
	if p.wire != "" {
		return q.ofTask(ctx, q.task(p.wire))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, starting+10*q.duration, errors.New("no result in time"))
	defer cancel()
	values := []*float64{&a.Value, &a.Tail}
	for i, x := range p.programs[q.name] {
		if *values[i], err = x.run(ctx, q); err != nil {
			return a, caused(ctx, err)
		}
	}
	return a, nil
}

// errNoColumn: a peer's output is not as we know it.
var errNoColumn = errors.New("its output has no such column")

// program is one measurement by a peer's programs: command lines, in which {words} stand for what changes.
type program struct {
	environment []string
	// server is empty if the client starts both sides. It is ready once it listens at {port}, or ready is in {folder}.
	server, ready, client string
	// figure finds a value in a line of the client's output, in scale of the question's unit; the last one counts.
	// Without it the MB/s count of {stream} bytes until both have ended.
	figure *regexp.Regexp
	scale  float64
	// everySecond: it is the server that tells a value, each second. The median counts but for the first, which is
	// not of a whole one.
	everySecond bool
	// hint says what to do about an error.
	hint string
}

// run measures once. Each side is on a core of its own, and in a network of its own if the test has some.
func (p *program) run(ctx context.Context, q *asked) (v float64, err error) {
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	at := &path{}
	if vethMTU[q.wire] > 0 {
		if at.cable, err = newCable(q.wire); err != nil {
			return 0, err
		}
		defer at.cable.close()
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	messages, bytes := iterations(q.duration, q.bytes), int64(200e6*q.duration.Seconds())
	launch := func(side int, line, cores string) (started *process, err error) {
		words := strings.NewReplacer("{folder}", folder, "{port}", strconv.Itoa(port), "{core}", cores,
			"{bytes}", strconv.Itoa(q.bytes), "{messages}", strconv.Itoa(messages), "{trial}", strconv.Itoa(messages/7+1),
			"{stream}", strconv.FormatInt(bytes, 10))
		args := slices.Concat(p.environment, []string{"taskset", "-c", cores}, strings.Fields(line))
		for i, a := range args {
			args[i] = words.Replace(a)
		}
		err = at.in(side, func() (err error) { started, err = start(ctx, nil, "env", args...); return err })
		return started, err
	}
	var server *process
	cores := fmt.Sprintf("%d,%d", q.Cores[0], q.Cores[1])
	if p.server != "" {
		cores = strconv.Itoa(q.Cores[1])
		if server, err = launch(0, p.server, strconv.Itoa(q.Cores[0])); err != nil {
			return 0, err
		}
		defer server.stop()
		if err := await(ctx, func() bool { return p.isReady(server, folder, port) }); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	client, err := launch(1, p.client, cores)
	if err != nil {
		return 0, err
	}
	defer client.stop()
	switch {
	case p.everySecond:
		v, err = p.rate(server, 1+max(int(q.duration/time.Second), 2))
	case p.figure != nil:
		v, err = p.last(client)
	default:
		_, err = client.output()
		_, err2 := server.output()
		v, err = float64(bytes)/1e6/time.Since(began).Seconds(), errors.Join(err, err2)
	}
	if err != nil {
		err = fmt.Errorf(cmp.Or(p.hint, "%w"), err)
	}
	return v, err
}

// iterations that take about d if each takes at most what a slow machine needs.
func iterations(d time.Duration, bytes int) int {
	each := 600*time.Nanosecond + time.Duration(bytes)*time.Nanosecond/8
	return max(int(d/each), 100)
}

// find reads the figure in a line, if there is one.
func (p *program) find(line string) (float64, bool) {
	found := p.figure.FindStringSubmatch(strings.TrimRight(line, "\n"))
	if found == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(found[1], 64)
	return v * p.scale, err == nil
}

// last is the figure that the client's output has last.
func (p *program) last(client *process) (v float64, err error) {
	text, err := client.output()
	if err != nil {
		return 0, err
	}
	if strings.Contains(string(text), "ERROR") {
		return 0, errors.New(strings.TrimSpace(string(text)))
	}
	err = errNoColumn
	for line := range strings.Lines(string(text)) {
		if found, ok := p.find(line); ok {
			v, err = found, nil
		}
	}
	return v, err
}

// rate is the median of so many figures that the server tells.
func (p *program) rate(server *process, count int) (float64, error) {
	var rates []float64
	for len(rates) < count {
		line, err := server.out.ReadString('\n')
		if err != nil {
			return 0, errors.Join(errNoColumn, err)
		}
		if v, ok := p.find(line); ok {
			rates = append(rates, v)
		}
	}
	m, _ := Median(rates[1:])
	return float64(m), nil
}

// isReady looks for the server's file, or its port in /proc/PID/net/tcp, as a connection would be taken for
// a client (proc_pid_net(5): local address, then state 0A).
func (p *program) isReady(server *process, folder string, port int) bool {
	if p.ready != "" {
		_, err := os.Stat(filepath.Join(folder, p.ready))
		return err == nil
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", server.cmd.Process.Pid, table))
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}
