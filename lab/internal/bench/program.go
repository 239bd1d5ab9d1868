package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
