package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

func TestValues(t *testing.T) {
	got := map[string]uint64{}
	for _, v := range telemetry.Values(&counters{Frames: 7, Level: 2, Queues: []queue{{0}, {9}}}) {
		got[v.Name] = v.Value
		if v.Help == "" || v.Unit != "frames" || v.Gauge != (v.Key == "level") {
			t.Errorf("%+v", v)
		}
	}
	if want := map[string]uint64{"frames": 7, "level": 2, "queues_0_lost": 0, "queues_1_lost": 9}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, none := range []any{nil, 3, (*counters)(nil), "x"} {
		if v := telemetry.Values(none); len(v) > 0 {
			t.Errorf("%v has %v", none, v)
		}
	}
}

// TestCommands: what DPDK's clients ask, and ours.
func TestCommands(t *testing.T) {
	leaktest.Check(t)
	c := dial(t, serve(t, source("emu:a"), source("emu:b")))
	if c.Version != telemetry.Version || c.PID != os.Getpid() || int(c.UID) != os.Getuid() {
		t.Errorf("%+v", c)
	}
	for _, x := range []struct{ ask, want string }{
		{"/ethdev/list", `[0,1]`},
		{"/ethdev/macs,1", `["02:00:00:00:00:01"]`},
		{"/ethdev/link_status,0", `{"status":"UP","speed":4294967295,"duplex":"full-duplex"}`},
		{"/ethdev/stats,0", `{"ipackets":3,"opackets":0,"ibytes":300,"obytes":0,"imissed":0,"ierrors":0,"oerrors":0,"rx_nombuf":0}`},
		{"/ethdev/xstats,0,hide_zero=true", `{"rx_good_packets":3,"rx_good_bytes":300,"frames":7,"queues_1_lost":9}`},
		{"/help,/ethdev/list", `{"/ethdev/list":"Lists the ports, which are the NICs. Takes no parameters."}`},
		{"/help,/trapeze/sum", `{"/trapeze/sum":"Adds."}`},
		{"/trapeze/sum,5", `{"address":"emu:a","parameters":[5,0]}`},
		{"/trapeze/sum,1,5", `{"address":"emu:b","parameters":[5,0]}`},
		{"/trapeze/sum,1,5,6", `{"address":"emu:b","parameters":[5,6]}`},
	} {
		var got, want any
		must.OK(t, json.Unmarshal([]byte(x.want), &want))
		if err := c.Ask(t.Context(), x.ask, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v", x.ask, got, err, want)
		}
	}
	var names []string
	if err := c.Ask(t.Context(), "/", &names); err != nil || !strings.Contains(strings.Join(names, " "), "/trapeze/sum") {
		t.Errorf("%v, %v", names, err)
	}
	for _, bad := range []string{"/nothing", "/ethdev/info,2", "/ethdev/info", "/ethdev/info,x", "/ethdev/info,-1", "/ethdev/list2", "/ethdev/xstats,0,x",
		"/trapeze/sum", "/trapeze/sum,1,2,3,4", "/trapeze/sum,x", "/trapeze/fail", "/trapeze/big", "/help,/x", "/" + strings.Repeat("x", 60), "x", "\x00", ",", "/,1,\xff"} {
		var got any
		err := c.Ask(t.Context(), bad, &got)
		if bad == "/,1,\xff" { // parameters of a command that takes none are passed over, as by DPDK
			if err != nil {
				t.Errorf("%q: %v", bad, err)
			}
			continue
		}
		should.Fail(t, err, telemetry.ErrNoAnswer, "%q: %v", bad, got)
	}
}

// TestMixedCommands: what one source has and another has not is not asked of that, whichever was
// first, and a port without endpoints has none.
func TestMixedCommands(t *testing.T) {
	leaktest.Check(t)
	c := dial(t, serve(t, bare("agent:a"), source("emu:b"), other("emu:c")))
	for _, x := range []struct {
		ask  string
		want any
	}{
		{"/trapeze/sum,1,5", map[string]any{"address": "emu:b", "parameters": []any{5., 0.}}},
		{"/trapeze/sum,2,5", nil}, {"/trapeze/sum,0,5", nil}, {"/trapeze/sum,5", nil}, {"/trapeze/sum", nil},
		{"/trapeze/twice,2,1,2,3", []any{1., 2., 3.}}, {"/trapeze/twice,1,1,2,3", nil}, {"/trapeze/big,2", "small"},
		{"/help,/trapeze/twice", map[string]any{"/trapeze/twice": "Needs two."}},
	} {
		var got any
		if err := c.Ask(t.Context(), x.ask, &got); x.want == nil && !errors.Is(err, telemetry.ErrNoAnswer) || x.want != nil && err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %v, %v, want %v", x.ask, got, err, x.want)
		}
	}
	if list, err := telemetry.Endpoints(t.Context(), c, 0); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestSilent: a process that does not answer is named, and those that do are asked nevertheless.
func TestSilent(t *testing.T) {
	leaktest.Check(t)
	path := serve(t, source("emu:a"))
	unresponsive := filepath.Join(filepath.Dir(path), "dpdk_telemetry.v2:1")
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: unresponsive, Net: "unixpacket"}))(t)
	defer l.Close()
	asked := false
	late := telemetry.Each(t.Context(), func(ctx context.Context, c *telemetry.Client) error {
		defer c.Close()
		nics, err := telemetry.NICs(ctx, c)
		if c.Path == path {
			asked = err == nil && len(nics) == 1
		}
		return err
	})
	name, err := os.ReadFile("/proc/self/comm")
	late = slices.DeleteFunc(late, func(s *telemetry.Unresponsive) bool { return s.Socket != unresponsive && s.Socket != path }) // others of this host
	if err != nil || len(late) != 1 || late[0].PID != os.Getpid() || late[0].Socket != unresponsive || late[0].Program+"\n" != string(name) || !asked {
		t.Errorf("%+v, asked: %v, %v", late, asked, err)
	}
}

// TestLateAnswer: what comes after a question was given up is not the answer to the next one.
func TestLateAnswer(t *testing.T) {
	leaktest.Check(t)
	slow := source("emu:a")
	ask, answer := make(chan bool), make(chan bool)
	slow.Commands[0].Run = func(context.Context, []uint64) (any, error) {
		ask <- true
		<-answer
		return "late", nil
	}
	c := dial(t, serve(t, slow))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-ask; cancel() }()
	var got any
	should.Fail(t, c.Ask(ctx, "/trapeze/sum,1", &got), context.Canceled, "%v", got)
	close(answer)
	should.Fail(t, c.Ask(t.Context(), "/trapeze/sum,1", &got), net.ErrClosed, "%v", got)
}

// TestLeave: a source that has left is asked no more, its number is given out again, and the
// socket goes with the last one.
func TestLeave(t *testing.T) {
	leaktest.Check(t)
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	first, second := telemetry.Register(source("emu:a"), telemetry.Options{}), telemetry.Register(source("emu:b"), telemetry.Options{})
	path := only(t)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	c := dial(t, path)
	first()
	var list []int
	if err := c.Ask(t.Context(), "/ethdev/list", &list); err != nil || !reflect.DeepEqual(list, []int{1}) {
		t.Errorf("%v, %v", list, err)
	}
	third := telemetry.Register(source("emu:c"), telemetry.Options{NoTelemetry: true})
	var info struct{ Name string }
	if err := c.Ask(t.Context(), "/ethdev/info,0", &info); err != nil || info.Name != "emu:c" {
		t.Errorf("%+v, %v", info, err)
	}
	second()
	should.Refuse(os.Stat(path))(t, fs.ErrNotExist, "the socket is still there")
	if err := c.Ask(t.Context(), "/ethdev/list", &list); err == nil {
		t.Error("a server that has ended answers")
	}
	third()
}

// TestOff: no socket is made if that is not wanted, or cannot be.
func TestOff(t *testing.T) {
	dir := t.TempDir()
	for name, setUp := range map[string]func(t *testing.T) string{
		"off":       func(*testing.T) string { return "off" },
		"no prefix": func(*testing.T) string { return "../up" },
		"no folder": func(t *testing.T) string { t.Setenv("RUNTIME_DIRECTORY", filepath.Join(dir, "none")); return "test" },
		"a file": func(t *testing.T) string {
			return inTheWay(t, func(p string) error { return os.WriteFile(p, nil, 0o600) })
		},
		"a link": func(t *testing.T) string {
			return inTheWay(t, func(p string) error { return os.Symlink(t.TempDir(), p) })
		},
		"open to all": func(t *testing.T) string {
			return inTheWay(t, func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
			t.Setenv(telemetry.Variable, setUp(t))
			var said strings.Builder
			log := slog.New(slog.NewTextHandler(&said, nil))
			telemetry.Register(source("emu:a"), telemetry.Options{Logger: log})()
			leave := telemetry.Register(source("emu:a"), telemetry.Options{Logger: log})
			defer leave()
			if off := name == "off" || name == "no prefix"; off == strings.Contains(said.String(), "level=WARN") {
				t.Errorf("%q", said.String())
			}
			for _, path := range telemetry.Find() {
				if strings.HasPrefix(path, os.Getenv("RUNTIME_DIRECTORY")) {
					t.Errorf("there is %s", path)
				}
			}
		})
	}
}

// inTheWay has something at the place of the folder of sockets.
func inTheWay(t *testing.T, create func(path string) error) string {
	t.Helper()
	must.OK(t, create(filepath.Join(os.Getenv("RUNTIME_DIRECTORY"), "dpdk")))
	return "test"
}

// TestStale: the socket of a program that was killed is replaced; that of one that runs is not.
func TestStale(t *testing.T) {
	t.Setenv(telemetry.Variable, "test")
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", dir)
	folder := filepath.Join(dir, "dpdk", "test")
	must.OK(t, os.MkdirAll(folder, 0o700))
	listen := func(name string) *net.UnixListener {
		l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(folder, name), Net: "unixpacket"}))(t)
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		return l
	}
	listen("dpdk_telemetry.v2")
	listen("dpdk_telemetry.v2:1").Close()
	listen("dpdk_telemetry.v2:7").Close()
	t.Cleanup(telemetry.Register(source("emu:a"), telemetry.Options{}))
	dial(t, filepath.Join(folder, "dpdk_telemetry.v2:1"))
	if list, err := os.ReadDir(folder); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestClients: ten clients are served at a time. One that leaves makes room.
func TestClients(t *testing.T) {
	leaktest.Check(t)
	path := serve(t, source("emu:a"))
	var clients []*telemetry.Client
	for range 10 {
		clients = append(clients, dial(t, path))
	}
	if c, err := telemetry.Dial(t.Context(), path); err == nil {
		c.Close()
		t.Error("an 11th client was served")
	}
	clients[3].Close()
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := telemetry.Dial(t.Context(), path)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	var list []int
	should.OK(t, clients[9].Ask(t.Context(), "/ethdev/list", &list))
}

// TestBadClients: a client that sends too much, and one that never reads, are cut off, and
// others served meanwhile.
func TestBadClients(t *testing.T) {
	leaktest.Check(t)
	path := serve(t, source("emu:a"))
	good := dial(t, path)
	raw := func() *net.UnixConn {
		c := must.Get(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
		t.Cleanup(func() { c.Close() })
		must.OK(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		return c
	}
	long := raw()
	must.Get(long.Write([]byte(strings.Repeat("/", 64<<10))))(t)
	packets := 0
	for b := make([]byte, 4096); ; packets++ {
		if _, err := long.Read(b); err != nil {
			if packets > 1 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d packets, %v", packets, err)
			}
			break
		}
	}
	deaf := raw()
	for err := error(nil); err == nil; {
		_, err = deaf.Write([]byte("/"))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client that never reads is not cut off")
		}
	}
	var list []int
	if err := good.Ask(t.Context(), "/ethdev/list", &list); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestPages: a list comes in parts, and nothing is left out.
func TestPages(t *testing.T) {
	var rows []uint64
	for i := range 300 {
		rows = append(rows, uint64(7*i))
	}
	var got []uint64
	for from := uint64(0); ; {
		p := telemetry.NewPage(rows, func(n uint64) uint64 { return n }, from)
		got = append(got, p.Rows...)
		if len(p.Rows) > telemetry.PageRows {
			t.Fatalf("%d rows", len(p.Rows))
		}
		if p.Next == nil {
			break
		}
		from = *p.Next
	}
	if !reflect.DeepEqual(got, rows) {
		t.Errorf("%d rows of %d", len(got), len(rows))
	}
	if b, err := json.Marshal(telemetry.NewPage([]uint64(nil), func(n uint64) uint64 { return n }, 0)); err != nil || string(b) != `{"rows":[],"next":null}` {
		t.Errorf("%s, %v", b, err)
	}
}

// TestBadServers: a client takes nothing else than answers, and waits for none without end.
func TestBadServers(t *testing.T) {
	leaktest.Check(t)
	dir := t.TempDir()
	const hello = `{"version":"x","pid":1,"max_output_len":64}`
	for i, packets := range [][]string{{}, {"x"}, {"{}"}, {`{"version":"x","pid":1,"max_output_len":-1}`}, {`{"version":"x","max_output_len":99999999}`},
		{hello, "x"}, {hello, `{"/y":1}`}, {hello, `{"/x":1,"/y":2}`}, {hello, `{"/x":"text"}`}, {hello, `{"/x":` + strings.Repeat(" ", 100) + `1}`}, {hello, ""}} {
		path := filepath.Join(dir, fmt.Sprint(i))
		l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			for _, p := range packets {
				c.Write([]byte(p))
			}
			c.Close()
		}()
		c, err := telemetry.Dial(t.Context(), path)
		if err == nil {
			var n int
			err = c.Ask(t.Context(), "/x", &n)
			c.Close()
		}
		if err == nil || errors.Is(err, telemetry.ErrNoAnswer) {
			t.Errorf("%q: %v", packets, err)
		}
		l.Close()
		<-done
	}
}
