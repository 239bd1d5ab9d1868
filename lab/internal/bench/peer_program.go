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
	figure                func(Question, *exchange) (float64, error)
	// hint says what to do about an error.
	hint string
}

// exchange is a program that runs.
type exchange struct {
	server, client *process
	started        time.Time // when the client was
}

// run measures once. Each side is on a core of its own, and in a network of its own if the test has some.
func (p *program) run(ctx context.Context, q Question) (v float64, err error) {
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	in := func(_ int, f func() error) error { return f() }
	if slices.Contains(veths, q.Test) {
		c, err := newCable(q.Test)
		if err != nil {
			return 0, err
		}
		defer c.close()
		in = c.in
	}
	launch := func(side int, line, cores string) (started *process, err error) {
		words := strings.NewReplacer("{folder}", folder, "{port}", strconv.Itoa(ports[0]), "{core}", cores, "{bytes}", strconv.Itoa(q.Bytes),
			"{messages}", strconv.Itoa(iterations(q.For, q.Bytes)), "{trial}", strconv.Itoa(iterations(q.For, q.Bytes)/7+1), "{stream}", strconv.FormatInt(streamed(q), 10))
		args := slices.Concat(p.environment, []string{"taskset", "-c", cores}, strings.Fields(line))
		for i, a := range args {
			args[i] = words.Replace(a)
		}
		err = in(side, func() (err error) { started, err = start(ctx, nil, "env", args...); return err })
		return started, err
	}
	var x exchange
	cores := fmt.Sprintf("%d,%d", q.Cores[0], q.Cores[1])
	if p.server != "" {
		cores = strconv.Itoa(q.Cores[1])
		if x.server, err = launch(0, p.server, strconv.Itoa(q.Cores[0])); err != nil {
			return 0, err
		}
		defer x.server.stop()
		if p.ready != "" {
			err = awaitFiles(ctx, []string{filepath.Join(folder, p.ready)})
		} else {
			err = awaitListener(ctx, x.server, ports[0])
		}
		if err != nil {
			return 0, err
		}
	}
	x.started = time.Now()
	if x.client, err = launch(1, p.client, cores); err != nil {
		return 0, err
	}
	defer x.client.stop()
	return p.figure(q, &x)
}

// asks makes a peer's ask of its programs for each test: the second, if there is one, tells the tail.
func asks(tests map[string][]program) func(context.Context, Question) (Answer, error) {
	return func(ctx context.Context, q Question) (a Answer, err error) {
		values := []*float64{&a.Value, &a.Tail}
		for i, p := range tests[q.Test] {
			if *values[i], err = p.run(ctx, q); err != nil {
				return a, fmt.Errorf(cmp.Or(p.hint, "%w"), err)
			}
		}
		return a, nil
	}
}

// iterations that take about d if each takes at most what a slow machine needs.
func iterations(d time.Duration, bytes int) int {
	each := 600*time.Nanosecond + time.Duration(bytes)*time.Nanosecond/8
	return max(int(d/each), 100)
}

// found is the figure that an expression finds last in the client's output, times scale.
func found(expression string, scale float64) func(Question, *exchange) (float64, error) {
	e := regexp.MustCompile(expression)
	return func(_ Question, x *exchange) (float64, error) {
		text, err := x.client.output()
		if err != nil {
			return 0, err
		}
		if strings.Contains(string(text), "ERROR") {
			return 0, errors.New(strings.TrimSpace(string(text)))
		}
		all := e.FindAllSubmatch(text, -1)
		if len(all) == 0 {
			return 0, errNoColumn
		}
		v, err := strconv.ParseFloat(string(all[len(all)-1][1]), 64)
		return v * scale, err
	}
}

// streamed is the length of a stream: 200 MB for each second to measure for.
func streamed(q Question) int64 { return int64(200e6 * q.For.Seconds()) }

// untilBothEnd are the MB/s of a stream over the time until both ends have ended.
func untilBothEnd(q Question, x *exchange) (float64, error) {
	for _, p := range []*process{x.client, x.server} {
		if _, err := p.output(); err != nil {
			return 0, err
		}
	}
	return float64(streamed(q)) / 1e6 / time.Since(x.started).Seconds(), nil
}

// receivedRate is the median of what the server tells of whole seconds, in lines such as "  Rx-pps:  1234  Rx-bps: ...".
// The first with frames in it is incomplete.
func receivedRate(q Question, x *exchange) (float64, error) {
	var rates []float64
	for want := 1 + max(int(q.For/time.Second), 2); len(rates) < want; {
		line, err := x.server.out.ReadString('\n')
		if err != nil {
			return 0, errors.Join(errNoColumn, err)
		}
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Rx-pps:" {
			if v, err := strconv.ParseFloat(fields[1], 64); err == nil && v > 0 {
				rates = append(rates, v)
			}
		}
	}
	rates = rates[1:]
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}
