package tcpip_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// TestHTTP2: many requests at once on one connection of a stock client and server.
func TestHTTP2(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	l := must.Get(b.Listen("tcp", ":80"))(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s ", r.Proto, r.RemoteAddr)
		_, _ = io.Copy(w, r.Body)
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DialContext: a.DialContext, Protocols: &protocols}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	body := bytes.Repeat([]byte("half a page. "), 5_000)
	const requests = 50
	first := make(chan string, requests)
	for range requests {
		go func() {
			answer, err := client.Post("http://10.0.0.2/", "text/plain", bytes.NewReader(body))
			if err != nil {
				first <- err.Error()
				return
			}
			defer answer.Body.Close()
			got, err := io.ReadAll(answer.Body)
			if head, rest, ok := bytes.Cut(got, []byte("half")); ok && err == nil && len(rest)+4 == len(body) {
				first <- string(head)
				return
			}
			first <- fmt.Sprintf("%d bytes, %v", len(got), err)
		}()
	}
	connections := map[string]int{}
	for range requests {
		connections[<-first]++
	}
	for c := range connections {
		if !bytes.HasPrefix([]byte(c), []byte("HTTP/2.0 10.0.0.1:")) {
			t.Errorf("an answer begins %q", c)
		}
	}
}

// TestManyListeners: as many as there are ports, but one that is taken. Each answers.
func TestManyListeners(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	taken := echoing(t, b, ":1000")
	defer taken.Close()
	var all []net.Listener
	defer func() {
		for _, l := range all {
			_ = l.Close()
		}
	}()
	for port := 1; port < 65536; port++ {
		l, err := b.Listen("tcp4", fmt.Sprintf(":%d", port))
		if (err != nil) != (port == 1000) {
			t.Fatalf("port %d: %v", port, err)
		}
		if err == nil {
			all = append(all, l)
		}
	}
	for _, port := range []int{1, 999, 1001, 65535} {
		c := must.Get(a.DialContext(within(t, 20*time.Second), "tcp", fmt.Sprintf("10.0.0.2:%d", port)))(t)
		_ = c.Close()
	}
}

// TestSlowReader: a writer waits for a reader that does not read, and for as long as its deadline says; then all bytes arrive.
func TestSlowReader(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	l := must.Get(b.Listen("tcp", ":9"))(t)
	defer l.Close()
	c := must.Get(a.DialContext(within(t, 20*time.Second), "tcp", "10.0.0.2:9"))(t)
	slow, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, c.SetWriteDeadline(time.Now().Add(2*time.Second)))
	sent := 0
	for b := make([]byte, 1<<20); err == nil; {
		var n int
		n, err = c.Write(b)
		sent += n
	}
	if e, ok := err.(net.Error); !ok || !e.Timeout() {
		t.Fatalf("after %d bytes: %v, not a deadline", sent, err)
	}
	if sent > 64<<20 {
		t.Errorf("%d bytes are held for a reader that does not read", sent)
	}
	_ = c.Close()
	_ = slow.SetReadDeadline(time.Now().Add(30 * time.Second))
	if got, err := io.Copy(io.Discard, slow); err != nil || got != int64(sent) {
		t.Errorf("%d bytes of %d arrive, %v", got, sent, err)
	}
	_ = slow.Close()
}
